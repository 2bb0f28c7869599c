"""The records of closed connections, for monitoring."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from natsd.auth import Verdict
from natsd.clients.client import Client
from natsd.clients.subscription_info import SubscriptionInfo

if TYPE_CHECKING:
    from natsd.tls.peer import TlsState

SUBSCRIPTIONS_KEPT_MAX: Final = 32
"""A closed connection with more subscriptions keeps none of them."""


@dataclass(slots=True)
class ClosedClient:
    """A closed client as `connz?state=closed` shows it; times in ns of the monotonic clock."""

    cid: int
    kind: str
    ip: str
    port: int
    start_ns: int
    last_activity_ns: int
    stop_ns: int
    reason: str
    rtt_ns: int
    pending_bytes: int
    in_msgs: int
    in_bytes: int
    out_msgs: int
    out_bytes: int
    stalls: int
    num_subscriptions: int
    name: str
    lang: str
    version: str
    authorized_user: str
    account_name: str
    verdict: Verdict | None
    tls_state: "TlsState | None"
    kept_subscriptions: tuple[SubscriptionInfo, ...]

    @classmethod
    def of(cls, client: Client) -> "ClosedClient":
        """Return the record of a client that is being torn down and still has its subscriptions."""
        few = client.num_subscriptions <= SUBSCRIPTIONS_KEPT_MAX
        assert client.reason is not None
        assert client.account is not None
        return cls(
            cid=client.cid,
            kind=client.kind,
            ip=client.ip,
            port=client.port,
            start_ns=client.start_ns,
            last_activity_ns=client.last_activity_ns,
            stop_ns=time.monotonic_ns(),
            reason=client.reason.value,
            rtt_ns=client.rtt_ns,
            pending_bytes=client.pending_bytes,
            in_msgs=client.in_msgs,
            in_bytes=client.in_bytes,
            out_msgs=client.out_msgs,
            out_bytes=client.out_bytes,
            stalls=client.stalls,
            num_subscriptions=client.num_subscriptions,
            name=client.name,
            lang=client.lang,
            version=client.version,
            authorized_user=client.authorized_user,
            account_name=client.account.name,
            verdict=client.verdict,
            tls_state=client.tls_state,
            kept_subscriptions=tuple(client.subscriptions()) if few else (),
        )

    def subscriptions(self) -> Iterator[SubscriptionInfo]:
        """Yield the subscriptions of the client; none if it had over SUBSCRIPTIONS_KEPT_MAX."""
        return iter(self.kept_subscriptions)
