"""`/summaryz`: the server in one bounded answer, for viewers; an extension of natsd.

- Numbers of rows and lengths of texts are bounded, however much the server has: shown are the first
  by several measures (ranking.py), with the number of all.
- The answer is made in turns, at most once in `PAUSE_S` however many viewers there are. On a server
  with so much that this takes long, the pauses are `PAUSE_FACTOR` as long, up to `PAUSE_S_MAX`.
- Between two answers the counters of everything are remembered, for the rates; if nobody asks for
  `WATCHED_S`, they are forgotten. Then only the samples of the history are taken.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from natsd.core.steps import Steps
from natsd.monitor import jetstream
from natsd.monitor.clock import Clock
from natsd.monitor.observed import ObservedServer
from natsd.monitor.process_usage import cores, resident_bytes
from natsd.monitor.summary.accounts import MeasuredAccount, choose_accounts
from natsd.monitor.summary.connections import choose_connections, connection_row, latest_slow
from natsd.monitor.summary.history import History, count_subscriptions
from natsd.monitor.summary.meter import Meter
from natsd.monitor.summary.ranking import Ranking, shown
from natsd.monitor.summary.routes import choose_routes, cluster_facts, route_row
from natsd.monitor.summary.streams import ChosenStreams, MeasuredConsumer, MeasuredStream
from natsd.monitor.summary.subjects import SubjectActivity, choose_subjects
from natsd.monitor.turns import Turns
from natsd.monitor.values import datetime_ns, timestamp
from natsd.version import NATS_VERSION, VERSION

PAUSE_S: Final = 1.0
PAUSE_S_MAX: Final = 10.0
PAUSE_FACTOR: Final = 10
"""Making an answer takes at most a tenth of the time."""
WATCHED_S: Final = 15.0

ROWS_PER_STEP: Final = 16

Fields = dict[str, Any]
T = TypeVar("T")


class Summary:
    """The summary of one server; `run` keeps its history."""

    def __init__(self, server: ObservedServer, clock: Clock, turns: Turns) -> None:
        self._server = server
        self._clock = clock
        self._turns = turns
        self._history = History(server, turns, self._is_watched)
        self._making = asyncio.Lock()
        self._latest: Fields = {}
        self._next_s = 0.0
        self._asked_s = -WATCHED_S
        self._meters = [Meter() for _ in range(5)]

    async def run(self) -> None:
        """Take samples for the history, until it is cancelled."""
        await self._history.run()

    def _is_watched(self) -> bool:
        """Return whether somebody asked lately; if not, free what only viewers need."""
        is_watched = time.monotonic() - self._asked_s < WATCHED_S
        if not is_watched and self._latest:
            self._latest, self._next_s = {}, 0.0
            for meter in self._meters:
                meter.forget()
        return is_watched

    async def answer(self, after: int) -> Fields:
        """Return the summary, with the samples of the history after that sequence number."""
        self._asked_s = time.monotonic()
        async with self._making:
            began_s = time.monotonic()
            if began_s >= self._next_s:
                self._latest = await self._turns.run(self._make())
                took_s = time.monotonic() - began_s
                pause_s = min(max(PAUSE_S, took_s * PAUSE_FACTOR), PAUSE_S_MAX)
                self._next_s = began_s + pause_s
        return self._latest | {"history": self._history.after(after)}

    def _make(self) -> Steps[Fields]:
        server, clock = self._server, self._clock
        of_clients, of_subscriptions, of_accounts, of_streams, of_routes = self._meters
        for meter in self._meters:
            meter.look(clock.monotonic_ns())
        connections, receivers = yield from choose_connections(server, of_clients)
        subjects, seen = yield from choose_subjects(receivers.chosen(), of_subscriptions)
        accounts = yield from choose_accounts(server, of_accounts)
        routes = yield from choose_routes(server, of_routes)
        chosen = ChosenStreams()
        yield from chosen.choose(server.jetstream, of_streams)
        slow = yield from latest_slow(server, clock)
        subscriptions = yield from count_subscriptions(server)
        _add_stored(subjects, chosen)
        return {
            **self._facts(subscriptions, chosen),
            "connections": (
                yield from _table(connections, lambda each: connection_row(each, clock))
            ),
            "subjects": (yield from _table(subjects, SubjectActivity.row))
            | {"subscriptions_seen": seen},
            "accounts": (yield from _table(accounts, MeasuredAccount.row)),
            "routes": (yield from _table(routes, lambda each: route_row(each, clock))),
            "streams": (yield from _table(chosen.streams, MeasuredStream.row)),
            "consumers": (yield from _table(chosen.consumers, MeasuredConsumer.row)),
            "slow_consumers": {"total": server.counters.slow_consumers, "rows": slow},
        }

    def _facts(self, subscriptions: int, chosen: ChosenStreams) -> Fields:
        server, clock = self._server, self._clock
        engine, counters = server.jetstream, server.counters
        start_ns, now_ns = datetime_ns(server.start_time), clock.wall_ns()
        problems = list(chosen.problems)
        if not server.is_ready:
            problems.insert(0, "The server does not accept connections")
        elif engine is None and server.options.jetstream.enabled:
            problems.insert(0, "JetStream is not served")
        return {
            "server": {
                "id": server.id,
                "name": shown(server.name),
                "version": VERSION,
                "nats_version": NATS_VERSION,
                "host": server.client_host,
                "port": server.client_port,
                "start": timestamp(start_ns),
                "now": timestamp(now_ns),
                "uptime_s": (now_ns - start_ns) // 1_000_000_000,
                "cores": cores(),
                "auth_required": server.authenticator.is_required,
                "tls_required": server.options.tls is not None and not server.options.allow_non_tls,
                "max_connections": server.options.max_connections,
                "max_payload": server.options.max_payload,
            },
            "cluster": cluster_facts(server),
            "problems": problems,
            "totals": {
                "connections": len(server.clients),
                "total_connections": server.total_connections,
                "subscriptions": subscriptions,
                "in_msgs": counters.in_msgs,
                "out_msgs": counters.out_msgs,
                "in_bytes": counters.in_bytes,
                "out_bytes": counters.out_bytes,
                "slow_consumers": counters.slow_consumers,
                "stale_connections": counters.stale_connections,
                "stalled_clients": counters.stalled_clients,
                "mem": resident_bytes(),
            },
            "rates": self._history.latest,
            "jetstream": None
            if engine is None
            else jetstream.stats(engine)
            | {
                "streams": chosen.streams.total,
                "consumers": chosen.consumers.total,
                "messages": chosen.messages,
                "max_memory": engine.options.max_memory_store,
                "max_storage": engine.options.max_file_store,
            },
        }


def _table(ranking: Ranking[T], row: Callable[[T], Fields]) -> Steps[Fields]:
    """Return the number of all items, and the rows of the chosen ones."""
    rows = []
    for index, each in enumerate(ranking.chosen()):
        if index % ROWS_PER_STEP == 0:
            yield
        rows.append(row(each))
    return {"total": ranking.total, "rows": rows}


def _add_stored(subjects: Ranking[SubjectActivity], chosen: ChosenStreams) -> None:
    """Add the subjects of the chosen streams: what each stream takes in."""
    for measured in chosen.streams.chosen():
        config, state = measured.stream.config, measured.state
        if not config.subjects:
            continue
        more = f" (+{len(config.subjects) - 1})" if len(config.subjects) > 1 else ""
        activity = SubjectActivity(
            measured.account,
            shown(config.subjects[0]) + more,
            stream=measured.stream.name,
            msgs=state.last_sequence,
            rate=measured.rate,
        )
        subjects.add(activity, (activity.rate or 0.0, activity.msgs, 0))
