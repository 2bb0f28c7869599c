"""The publisher of a server's events: advisories and metrics (advisories.py).

    Events.publish ──▶ the account's internal client
          └ without a listener nothing is built

Promise
- An event is built only if it has a listener, and is queued: it may be published from anywhere,
  from inside a `deliver` too.
- `domain` is the last member, or where the fields have a place for it, and it is there only if the
  server has a domain. Members without a value (None) are left out.

Source: nats-server's `publishAdvisory`.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Final

from natsd.accounts import Account
from natsd.jetstream.models.go_json import encode_value
from natsd.jetstream.models.times import format_time

ID_BYTES: Final = 15  # 20 characters in base64

Fields = Mapping[str, object]


class Events:
    """Publisher of one server's events."""

    def __init__(
        self, *, domain: str, clock: Callable[[], int], random_bytes: Callable[[int], bytes]
    ) -> None:
        self.domain = domain
        self._clock = clock
        self._random_bytes = random_bytes

    def publish(self, account: Account, subject: str, event_type: str, fields: Fields) -> None:
        """Publish an event with these fields and the domain, if anybody in the account listens.

        Fields without a value (None) are left out; a `domain` of None marks the place of the
        domain.
        """
        if not account.sublist.has_interest(subject):
            return
        event: dict[str, object] = {
            "type": event_type,
            "id": base64.urlsafe_b64encode(self._random_bytes(ID_BYTES)).decode(),
            "timestamp": format_time(self._clock()),
            **fields,
        }
        event["domain"] = self.domain or None
        told = {name: value for name, value in event.items() if value is not None}
        account.internal_client.publish(subject, encode_value(told))
