"""What a consumer tells of single messages: the ack metric, and the place for advisories.

An event is published in the account, and built only if somebody listens. Source: reference §6.17;
schema io.nats.jetstream.metric.v1.consumer_ack.
"""

import base64
import json
from collections.abc import Callable
from typing import Final

from natsd.accounts import Account
from natsd.jetstream.models.times import format_time
from natsd.jetstream.names import METRIC_PREFIX

ACK_METRIC_TYPE: Final = "io.nats.jetstream.metric.v1.consumer_ack"
ID_BYTES: Final = 15  # 20 characters


class ConsumerEvents:
    """One consumer's; the engine's EngineEvents."""

    def __init__(
        self,
        account: Account,
        stream: str,
        consumer: str,
        *,
        domain: str,
        clock: Callable[[], int],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._account = account
        self._stream = stream
        self._consumer = consumer
        self._domain = domain
        self._clock = clock
        self._random_bytes = random_bytes

    def sampled(
        self, sequence: int, consumer_sequence: int, deliveries: int, ack_time_ns: int
    ) -> None:
        """Publish the ack metric."""
        self._publish(
            f"{METRIC_PREFIX}.CONSUMER.ACK.{self._stream}.{self._consumer}",
            ACK_METRIC_TYPE,
            {
                "stream": self._stream,
                "consumer": self._consumer,
                "consumer_seq": consumer_sequence,
                "stream_seq": sequence,
                "ack_time": max(ack_time_ns, 1),
                "deliveries": deliveries,
            },
        )

    # Advisories: each would be published as `sampled` does it.

    def max_deliveries(self, sequence: int, deliveries: int) -> None:
        """See EngineEvents; nothing is published."""

    def nacked(self, sequence: int, consumer_sequence: int, deliveries: int) -> None:
        """See EngineEvents; nothing is published."""

    def terminated(
        self, sequence: int, consumer_sequence: int, deliveries: int, reason: str
    ) -> None:
        """See EngineEvents; nothing is published."""

    def _publish(self, subject: str, event_type: str, fields: dict[str, object]) -> None:
        if not self._account.sublist.has_interest(subject):
            return
        event = {
            "type": event_type,
            "id": base64.urlsafe_b64encode(self._random_bytes(ID_BYTES)).decode(),
            "timestamp": format_time(self._clock()),
            **fields,
        }
        if self._domain:
            event["domain"] = self._domain
        body = json.dumps(event, separators=(",", ":"), ensure_ascii=False)
        self._account.internal_client.publish(subject, body.encode())
