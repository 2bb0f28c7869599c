"""The subjects on which JetStream takes an account's API requests: few, since accounts are many.

    $JS.API.>                         requests, and anything else that gets no answer
    $JS.<domain>.API.INFO, STREAM.>…  the same requests; those of streams and consumers, and of
                                      key-value and object stores, are published without the domain

Promise
- A subject that a stream or consumer serves itself (a pull, a direct get) is not accepted here: if
  it does not exist, the client gets a no-responders status.
- An account takes one subscription, and `DOMAIN_SUBJECTS` more with a domain.

Source: nats-server's `enableAllJetStreamServiceImportsAndMappings` and `generateJSMappingTable`.
"""

import contextlib
from typing import Final

from natsd.accounts import Account
from natsd.accounts.internal_client import Service, wire_subject
from natsd.core.network import Session
from natsd.core.routing import InvalidSubject, Subscription
from natsd.jetstream.names import API_PREFIX, ASSET_SPACES, DOMAIN_SPACES, domain_api_prefix

DOMAIN_SUBJECTS: Final = ("INFO", *DOMAIN_SPACES, "DIRECT.>", "$KV.>", "$OBJ.>")
_CLIENT_SPACES: Final = ("$KV.", "$OBJ.")
_NO_RESPONDERS: Final = "NATS/1.0 503\r\nNats-Subject: {subject}\r\n\r\n"


class AccountSubjects:
    """The subscriptions of one account; `service` gets its requests, all with `$JS.API`."""

    def __init__(
        self, account: Account, domain: str, service: Service, *, takes_all: bool = False
    ) -> None:
        """Subscribe. `takes_all`: the service gets the subjects of streams and consumers too."""
        self._account = account
        self._service = service
        self._prefix = f"{domain_api_prefix(domain)}." if domain else ""
        client = account.internal_client
        spaces = () if takes_all else ASSET_SPACES
        self._subscriptions: list[Subscription] = client.serve_all(
            [f"{API_PREFIX}.>"], service, refused=[f"{API_PREFIX}.{space}" for space in spaces]
        )
        if domain:
            subjects = [self._prefix + space for space in DOMAIN_SUBJECTS]
            self._subscriptions += client.serve_all(subjects, self._receive_in_domain)

    def close(self) -> None:
        """Unsubscribe."""
        for subscription in self._subscriptions:
            self._account.internal_client.unsubscribe(subscription)
        self._subscriptions.clear()

    def receive(
        self,
        subject: str,
        reply: str | None,
        headers: bytes,
        data: bytes,
        origin: Session | None,
    ) -> None:
        """Treat a message as if it came now; used for requests that were held."""
        in_domain = self._prefix and subject.startswith(self._prefix)
        receive = self._receive_in_domain if in_domain else self._service
        receive(subject, reply, headers, data, origin)

    def _receive_in_domain(
        self,
        subject: str,
        reply: str | None,
        headers: bytes,
        data: bytes,
        origin: Session | None,
    ) -> None:
        rest = subject.removeprefix(self._prefix)
        if rest.startswith(_CLIENT_SPACES):
            self._forward(rest, reply, headers, data)
        elif rest.startswith(ASSET_SPACES):
            self._forward(f"{API_PREFIX}.{rest}", reply, headers, data)
        else:
            self._service(f"{API_PREFIX}.{rest}", reply, headers, data, origin)

    def _forward(self, subject: str, reply: str | None, headers: bytes, data: bytes) -> None:
        """Publish the message again, on another subject."""
        account = self._account
        with contextlib.suppress(InvalidSubject):
            target = wire_subject(subject)
            answer_to = None if reply is None else wire_subject(reply)
            if not account.publisher.publish(target, data, answer_to, headers) and answer_to:
                status = _NO_RESPONDERS.format(subject=subject).encode("utf-8", "surrogateescape")
                account.internal_client.publish(str(reply), headers=status)
