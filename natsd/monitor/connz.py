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
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Any, Final, Literal

from natsd.clients import Client
from natsd.clients.closed import ClosedClient
from natsd.core.routing import collide
from natsd.core.steps import Steps
from natsd.monitor.clock import Clock
from natsd.monitor.connection_row import ConnectionRow, RowMaker
from natsd.monitor.observed import ObservedServer
from natsd.monitor.query import BadParameter, Query
from natsd.monitor.turns import Turns
from natsd.monitor.values import timestamp

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
    maker = RowMaker(
        auth=options.auth,
        subs=options.subs,
        subs_detail=options.subs_detail,
        accounts=server.accounts,
        clock=clock,
        now_ns=now_ns,
    )
    rows = map(maker.row, islice(page, count))
    return _answer(server.id, now_wall_ns, count, total, options, rows)


def _answer(
    server_id: str,
    now_wall_ns: int,
    count: int,
    total: int,
    options: ConnzParameters,
    rows: Iterator[ConnectionRow | dict[str, Any]] | None,
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
    if attribute == "cid" and options.state == "open":
        return iter(chosen)  # the server numbers its clients in the order of their mapping
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


def _lived_ns(connection: Client | ClosedClient, now_ns: int) -> int:
    until_ns = connection.stop_ns if isinstance(connection, ClosedClient) else now_ns
    return until_ns - connection.start_ns
