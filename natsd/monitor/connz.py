"""`/connz`: the open connections, and the latest closed ones.

- `SORTS` is the table of sort options: the attribute, and whether the largest comes first.
- Connections are chosen and sorted in steps, and a row is made only when it is written: so neither
  many connections nor many subscriptions block the event loop or are held in memory as text.

Sources: nats-server's `Connz` and `ConnInfo`.
"""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from operator import attrgetter, itemgetter
from typing import Any, Final, Literal

from natsd.accounts import AccountDirectory
from natsd.clients import Client
from natsd.clients.closed import ClosedClient
from natsd.core.routing import collide
from natsd.core.steps import Steps
from natsd.monitor.clock import Clock
from natsd.monitor.observed import ObservedServer
from natsd.monitor.query import BadParameter, Query
from natsd.monitor.turns import Turns
from natsd.monitor.values import round_trip, timestamp, uptime

LIMIT_DEFAULT: Final = 1024
CONNECTIONS_PER_STEP: Final = 512
FULL_WILDCARD: Final = ">"

State = Literal["open", "closed", "all"]

STATES: Final[dict[str, State]] = {
    "": "open",
    "open": "open",
    "closed": "closed",
    "any": "all",
    "all": "all",
}

SORTS: Final = {
    "": ("cid", False),
    "cid": ("cid", False),
    "start": ("cid", False),
    "subs": ("num_subscriptions", True),
    "pending": ("pending_bytes", True),
    "msgs_to": ("out_msgs", True),
    "msgs_from": ("in_msgs", True),
    "bytes_to": ("out_bytes", True),
    "bytes_from": ("in_bytes", True),
    "last": ("last_activity_ns", True),
    "idle": ("last_activity_ns", False),
    "uptime": ("uptime", False),
    "rtt": ("rtt_ns", True),
    "stop": ("stop_ns", True),
    "reason": ("reason", False),
}
CLOSED_ONLY_SORTS: Final = ("stop", "reason")


@dataclass(frozen=True, slots=True)
class ConnzParameters:
    """The parameters of a `/connz` request."""

    sort: str
    auth: bool
    subs: bool
    subs_detail: bool
    offset: int
    limit: int
    cid: int
    state: State
    user: str
    account: str
    mqtt_client: str
    filter_subject: str
    """Open connections without a subscription that shares subjects with it are left out."""

    @classmethod
    def of(cls, query: Query) -> "ConnzParameters":
        """Read the parameters; raises BadParameter."""
        auth = query.flag("auth")
        subs_detail = query.text("subs").lower() == "detail"
        subs = not subs_detail and query.flag("subs")
        offset, limit = max(query.whole("offset"), 0), query.whole("limit")
        cid = query.unsigned("cid")
        state = _state(query.text("state"))
        account, filter_subject = query.text("acc"), query.text("filter_subject")
        if filter_subject in ("", FULL_WILDCARD):
            filter_subject = ""
        elif not account:
            raise BadParameter("filter by subject only valid with account filtering")
        return cls(
            sort=_sort(query.text("sort"), state),
            auth=auth,
            subs=subs,
            subs_detail=subs_detail,
            offset=offset,
            limit=1 if cid else limit if limit > 0 else LIMIT_DEFAULT,
            cid=cid,
            state=state,
            user=query.text("user"),
            account=account,
            mqtt_client=query.text("mqtt_client"),
            filter_subject=filter_subject,
        )


def _state(text: str) -> State:
    if text.lower() not in STATES:
        raise BadParameter(f"Error decoding state for {text}")
    return STATES[text.lower()]


def _sort(text: str, state: State) -> str:
    if text not in SORTS:
        raise BadParameter(f"invalid sorting option: {text}")
    if text in CLOSED_ONLY_SORTS and state != "closed":
        raise BadParameter(f"sort by {text} only valid on closed connections")
    return text


async def connz(
    server: ObservedServer, options: ConnzParameters, clock: Clock, turns: Turns
) -> dict[str, Any]:
    """Return the answer to `/connz`; its rows are an iterator, which makes each one on demand."""
    now_ns, now_wall_ns = clock.monotonic_ns(), clock.wall_ns()
    if options.account and options.account not in server.accounts:
        return _answer("", now_wall_ns, 0, 0, options, None)
    chosen, total = await turns.run(_choose(server, options))
    start = min(options.offset, len(chosen))
    count = min(options.limit, len(chosen) - start)
    ordered = await turns.run(_ordered(chosen, options, now_ns))
    page = await turns.run(_behind(ordered, start))
    rows = (
        _row(connection, options, server.accounts, clock, now_ns)
        for connection in islice(page, count)
    )
    return _answer(server.id, now_wall_ns, count, total, options, rows)


def _answer(
    server_id: str,
    now_wall_ns: int,
    count: int,
    total: int,
    options: ConnzParameters,
    rows: Iterator[dict[str, Any]] | None,
) -> dict[str, Any]:
    return {
        "server_id": server_id,
        "now": timestamp(now_wall_ns),
        "num_connections": count,
        "total": total,
        "offset": options.offset,
        "limit": options.limit,
        "connections": rows,
    }


def _choose(
    server: ObservedServer, options: ConnzParameters
) -> Steps[tuple[list[Client | ClosedClient], int]]:
    """Return the connections that the request asks for, and the number of those in its account."""
    open_clients = [] if options.state == "closed" else list(server.clients.values())
    closed_clients = [] if options.state == "open" else list(server.closed_clients)
    everyone: list[Client | ClosedClient] = [*open_clients, *closed_clients]
    chosen: list[Client | ClosedClient] = []
    total = 0
    for index, connection in enumerate(everyone):
        if index % CONNECTIONS_PER_STEP == CONNECTIONS_PER_STEP - 1:
            yield
        if options.account and connection.account_name != options.account:
            continue
        total += 1
        if _is_wanted(connection, options) and (
            not options.filter_subject
            or isinstance(connection, ClosedClient)
            or (yield from _is_interested(connection, options.filter_subject))
        ):
            chosen.append(connection)
    return chosen, total


def _is_interested(client: Client, subject: str) -> Steps[bool]:
    """Return whether a subscription of the client shares subjects with that one."""
    for index, subscription in enumerate(client.own_subscriptions()):
        if collide(subject, subscription.subject):
            return True
        if index % CONNECTIONS_PER_STEP == CONNECTIONS_PER_STEP - 1:
            yield
    return False


def _is_wanted(connection: Client | ClosedClient, options: ConnzParameters) -> bool:
    if options.mqtt_client:
        return False  # natsd has no MQTT clients
    if options.cid:
        return connection.cid == options.cid
    return not options.user or connection.authorized_user == options.user


def _ordered(
    chosen: list[Client | ClosedClient], options: ConnzParameters, now_ns: int
) -> Steps[Iterator[Client | ClosedClient]]:
    """Return the connections in the order that the request asks for.

    Short runs are sorted here; they are merged only as connections are taken from the iterator.
    """
    attribute, largest_first = SORTS[options.sort]
    key: Callable[[Client | ClosedClient], Any] = attrgetter(attribute)
    if attribute == "uptime":
        key = partial(_lived_ns, now_ns=now_ns)
    runs = []
    for start in range(0, len(chosen), CONNECTIONS_PER_STEP):
        run = [(key(each), each) for each in chosen[start : start + CONNECTIONS_PER_STEP]]
        run.sort(key=itemgetter(0), reverse=largest_first)
        runs.append(run)
        yield
    merged = heapq.merge(*runs, key=itemgetter(0), reverse=largest_first)
    return (connection for _, connection in merged)


def _behind(
    connections: Iterator[Client | ClosedClient], count: int
) -> Steps[Iterator[Client | ClosedClient]]:
    """Skip the first `count` connections and return the iterator over the rest."""
    for index, _ in enumerate(islice(connections, count)):
        if index % CONNECTIONS_PER_STEP == CONNECTIONS_PER_STEP - 1:
            yield
    return connections


def _row(
    connection: Client | ClosedClient,
    options: ConnzParameters,
    accounts: AccountDirectory,
    clock: Clock,
    now_ns: int,
) -> dict[str, Any]:
    """Return one connection, its fields in the order of nats-server's `ConnInfo`."""
    closed = connection if isinstance(connection, ClosedClient) else None
    row: dict[str, Any] = {
        "cid": connection.cid,
        "kind": connection.kind,
        "type": "nats",
        "ip": connection.ip,
        "port": connection.port,
        "start": timestamp(clock.to_wall_ns(connection.start_ns)),
        "last_activity": timestamp(clock.to_wall_ns(connection.last_activity_ns)),
    }
    if closed:
        row["stop"] = timestamp(clock.to_wall_ns(closed.stop_ns))
        row["reason"] = closed.reason
    row |= {
        "rtt": round_trip(connection.rtt_ns),
        "uptime": uptime(_lived_ns(connection, now_ns)),
        "idle": uptime(_until_ns(connection, now_ns) - connection.last_activity_ns),
        "pending_bytes": connection.pending_bytes,
        "in_msgs": connection.in_msgs,
        "out_msgs": connection.out_msgs,
        "in_bytes": connection.in_bytes,
        "out_bytes": connection.out_bytes,
    }
    if connection.stalls:
        row["stalls"] = connection.stalls
    row["subscriptions"] = connection.num_subscriptions
    for name in ("name", "lang", "version"):
        if value := getattr(connection, name):
            row[name] = value
    row |= _tls(connection, options)
    interest = _interest(connection, options, accounts)
    if not options.auth:
        return row | interest
    return row | _login(connection, accounts) | interest | _identity(connection, accounts)


def _tls(connection: Client | ClosedClient, options: ConnzParameters) -> dict[str, Any]:
    """Return what was negotiated, and with `auth` the certificates of the client."""
    tls = connection.tls_state
    if tls is None:
        return {}
    fields: dict[str, Any] = {
        "tls_version": tls.version,
        "tls_cipher_suite": tls.cipher_suite,
    }
    if options.auth and tls.certificates:
        from natsd.tls.peer import describe

        fields["tls_peer_certs"] = describe(tls.certificates)
    return fields | ({"tls_first": True} if tls.is_first else {})


def _until_ns(connection: Client | ClosedClient, now_ns: int) -> int:
    return connection.stop_ns if isinstance(connection, ClosedClient) else now_ns


def _lived_ns(connection: Client | ClosedClient, now_ns: int) -> int:
    return _until_ns(connection, now_ns) - connection.start_ns


def _login(connection: Client | ClosedClient, accounts: AccountDirectory) -> dict[str, Any]:
    """Return user and account; the default account is not named."""
    login = {}
    if connection.authorized_user:
        login["authorized_user"] = connection.authorized_user
    if connection.account_name != accounts.default.name:
        login["account"] = connection.account_name
    return login


def _identity(connection: Client | ClosedClient, accounts: AccountDirectory) -> dict[str, Any]:
    """Return what the JWT of the user says, and the name tag of the account."""
    name = connection.account_name
    account = accounts.get(name)
    is_shown = account is not None and (
        not isinstance(connection, ClosedClient) or account is not accounts.default
    )
    name_tag = account.name_tag if is_shown and account is not None else ""
    facts = None if connection.verdict is None else connection.verdict.jwt
    if facts is None:
        return {"name_tag": name_tag} if name_tag else {}
    told = {
        "jwt": facts.jwt,
        "issuer_key": facts.issuer_key,
        "name_tag": name_tag,
        "tags": facts.tags,
    }
    return {name: value for name, value in told.items() if value}


def _interest(
    connection: Client | ClosedClient, options: ConnzParameters, accounts: AccountDirectory
) -> dict[str, Any]:
    """Return the subscriptions if `subs` asks for them; an empty mapping if there are none.

    As in nats-server, the details of closed connections name the account.
    """
    if not (options.subs or options.subs_detail):
        return {}
    subscriptions = connection.subscriptions()
    first = next(subscriptions, None)
    if first is None:
        return {}
    subscriptions = chain((first,), subscriptions)
    if options.subs:
        return {"subscriptions_list": (each.subject for each in subscriptions)}
    owner: dict[str, Any] = {}
    if isinstance(connection, ClosedClient):
        account = accounts.get(connection.account_name)
        owner = {"account": connection.account_name}
        if account is not None and account.name_tag:
            owner["account_tag"] = account.name_tag
    details = (
        owner
        | subscription_row(each.subject, each.queue, each.sid, each.msgs, each.max, connection.cid)
        for each in subscriptions
    )
    return {"subscriptions_list_detail": details}


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
