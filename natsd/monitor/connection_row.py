"""One row of `/connz`: a connection with its traffic, login and subscriptions.

- `ConnectionRow` has the fields of nats-server's `ConnInfo` in their order; msgspec encodes ten
  thousand of them in the time in which Python makes a thousand mappings. Fields with their default
  are left out.
- A connection with more than `SUBSCRIPTIONS_AT_ONCE` subscriptions is a mapping instead, whose list
  is an iterator: neither its subscriptions nor its text are held in memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec

from natsd.accounts import AccountDirectory
from natsd.clients import Client
from natsd.clients.closed import ClosedClient
from natsd.clients.subscription_info import SubscriptionInfo
from natsd.monitor.clock import Clock
from natsd.monitor.values import round_trip, timestamp, uptime

if TYPE_CHECKING:
    from natsd.tls.peer import TlsState

SUBSCRIPTIONS_AT_ONCE: Final = 8
_BEHIND_SUBSCRIPTIONS: Final = ("jwt", "issuer_key", "name_tag", "tags")


class ConnectionRow(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A connection as `/connz` shows it."""

    cid: int
    kind: str
    type: str
    ip: str
    port: int
    start: str
    last_activity: str
    stop: str = ""
    reason: str = ""
    rtt: str
    uptime: str
    idle: str
    pending_bytes: int
    in_msgs: int
    out_msgs: int
    in_bytes: int
    out_bytes: int
    stalls: int = 0
    subscriptions: int
    name: str = ""
    lang: str = ""
    version: str = ""
    tls_version: str = ""
    tls_cipher_suite: str = ""
    tls_peer_certs: list[dict[str, str]] = []
    tls_first: bool = False
    authorized_user: str = ""
    account: str = ""
    subscriptions_list: list[str] = []
    subscriptions_list_detail: list[dict[str, Any]] = []
    jwt: str = ""
    issuer_key: str = ""
    name_tag: str = ""
    tags: list[str] = []


@dataclass(frozen=True, slots=True)
class RowMaker:
    """Makes the rows of one answer.

    `auth`, `subs` and `subs_detail` are the parameters of the request, and `now_ns` is its time in
    ns of the monotonic clock.
    """

    auth: bool
    subs: bool
    subs_detail: bool
    accounts: AccountDirectory
    clock: Clock
    now_ns: int

    def row(self, connection: Client | ClosedClient) -> ConnectionRow | dict[str, Any]:
        """Return the row of a connection."""
        closed = connection if isinstance(connection, ClosedClient) else None
        until_ns = self.now_ns if closed is None else closed.stop_ns
        start_ns, active_ns = connection.start_ns, connection.last_activity_ns
        to_wall_ns = self.clock.to_wall_ns
        row = ConnectionRow(
            cid=connection.cid,
            kind=connection.kind,
            type="nats",
            ip=connection.ip,
            port=connection.port,
            start=timestamp(to_wall_ns(start_ns)),
            last_activity=timestamp(to_wall_ns(active_ns)),
            rtt=round_trip(connection.rtt_ns),
            uptime=uptime(until_ns - start_ns),
            idle=uptime(until_ns - active_ns),
            pending_bytes=connection.pending_bytes,
            in_msgs=connection.in_msgs,
            out_msgs=connection.out_msgs,
            in_bytes=connection.in_bytes,
            out_bytes=connection.out_bytes,
            stalls=connection.stalls,
            subscriptions=connection.num_subscriptions,
            name=connection.name,
            lang=connection.lang,
            version=connection.version,
        )
        if closed is not None:
            row.stop = timestamp(to_wall_ns(closed.stop_ns))
            row.reason = closed.reason
        tls = connection.tls_state
        if tls is not None:
            self._add_tls(row, tls)
        if self.auth:
            self._add_login(row, connection)
        if self.subs or self.subs_detail:
            return self._with_subscriptions(row, connection)
        return row

    def _add_tls(self, row: ConnectionRow, tls: "TlsState") -> None:
        """Add what was negotiated, and with `auth` the certificates of the client."""
        row.tls_version, row.tls_cipher_suite = tls.version, tls.cipher_suite
        if self.auth and tls.certificates:
            from natsd.tls.peer import describe

            row.tls_peer_certs = describe(tls.certificates)
        row.tls_first = tls.is_first

    def _add_login(self, row: ConnectionRow, connection: Client | ClosedClient) -> None:
        """Add user and account, unless it is the default account, and what the user's JWT says."""
        default = self.accounts.default
        row.authorized_user = connection.authorized_user
        if connection.account_name != default.name:
            row.account = connection.account_name
        account = self.accounts.get(connection.account_name)
        is_open = not isinstance(connection, ClosedClient)
        if account is not None and (is_open or account is not default):
            row.name_tag = account.name_tag
        facts = None if connection.verdict is None else connection.verdict.jwt
        if facts is not None:
            row.jwt, row.issuer_key = facts.jwt, facts.issuer_key
            row.tags = list(facts.tags)

    def _with_subscriptions(
        self, row: ConnectionRow, connection: Client | ClosedClient
    ) -> ConnectionRow | dict[str, Any]:
        """Add the subscriptions; as in nats-server, details of closed connections name the account.

        Subscriptions that end while they are read are left out.
        """
        few = connection.num_subscriptions <= SUBSCRIPTIONS_AT_ONCE
        found = connection.subscriptions()
        if self.subs:
            subjects = (each.subject for each in found)
            if few:
                row.subscriptions_list = list(subjects)
                return row
            return _with_list(row, "subscriptions_list", subjects)
        owner = self._owner(connection)
        details = (owner | _detail(each, row.cid) for each in found)
        if few:
            row.subscriptions_list_detail = list(details)
            return row
        return _with_list(row, "subscriptions_list_detail", details)

    def _owner(self, connection: Client | ClosedClient) -> dict[str, Any]:
        if not isinstance(connection, ClosedClient):
            return {}
        owner = {"account": connection.account_name}
        account = self.accounts.get(connection.account_name)
        if account is not None and account.name_tag:
            owner["account_tag"] = account.name_tag
        return owner


def _with_list(row: ConnectionRow, name: str, items: Iterator[Any]) -> dict[str, Any]:
    """Return the row as a mapping with an iterator in the place of the list of that name."""
    fields = msgspec.to_builtins(row)
    behind = {field: fields.pop(field) for field in _BEHIND_SUBSCRIPTIONS if field in fields}
    first = next(items, None)
    shown = {} if first is None else {name: chain((first,), items)}
    whole: dict[str, Any] = fields | shown | behind
    return whole


def _detail(subscription: SubscriptionInfo, cid: int) -> dict[str, Any]:
    return subscription_row(
        subscription.subject,
        subscription.queue,
        subscription.sid,
        subscription.msgs,
        subscription.max,
        cid,
    )


def subscription_row(
    subject: str, queue: str | None, sid: str, msgs: int, most: int, cid: int
) -> dict[str, Any]:
    """Return one subscription in detail, as `/connz` and `/subsz` show it.

    `most` is the number of messages after which it ends; 0: it does not.
    """
    row: dict[str, Any] = {"subject": subject}
    if queue:
        row["qgroup"] = queue
    row |= {"sid": sid, "msgs": msgs}
    if most:
        row["max"] = most
    row["cid"] = cid
    return row
