"""The monitoring answers, whether the request came over HTTP or over NATS.

The parameters of a request are a `Query`; the answer is a mapping that `json_text` writes. Each
method raises BadParameter for parameters it cannot use.
"""

import asyncio
from typing import Any

from natsd.monitor.accounts import accountz, accstatz, shown_accounts
from natsd.monitor.clock import Clock
from natsd.monitor.connz import ConnzParameters, connz
from natsd.monitor.healthz import HealthzOptions, healthz
from natsd.monitor.internals import expvarz, ipqueuesz
from natsd.monitor.jetstream_rows import ConfigTexts
from natsd.monitor.jsz import JszOptions, account_detail, jsz
from natsd.monitor.observed import ObservedServer
from natsd.monitor.peers import gatewayz, leafz
from natsd.monitor.process_usage import ProcessorUse, processor_time_ns
from natsd.monitor.query import BadParameter, Query
from natsd.monitor.routez import RoutezParameters, routez
from natsd.monitor.statsz import statsz
from natsd.monitor.subsz import SubszParameters, subsz
from natsd.monitor.turns import Turns
from natsd.monitor.varz import varz

Fields = dict[str, Any]


class Answers:
    """The answers about one server."""

    def __init__(self, server: ObservedServer, clock: Clock, http_port: int) -> None:
        self.server = server
        self.clock = clock
        self.turns = Turns(server.reactor.serve_waiting)
        self._http_port = http_port
        self._looking = asyncio.Lock()
        self._configs = ConfigTexts()
        self._processor = ProcessorUse(clock.monotonic_ns(), processor_time_ns())

    def _processor_percent(self) -> float:
        return self._processor.sample(self.clock.monotonic_ns(), processor_time_ns())

    async def varz(self, query: Query) -> Fields:
        """Return the server's settings and traffic."""
        return varz(
            self.server,
            self.clock,
            http_port=self._http_port,
            processor_percent=self._processor_percent(),
        )

    async def statsz(self, query: Query) -> Fields:
        """Return the load statistics that servers send to each other."""
        return statsz(self.server, processor_percent=self._processor_percent())

    async def connz(self, query: Query) -> Fields:
        """Return the open or closed connections."""
        return await connz(self.server, ConnzParameters.of(query), self.clock, self.turns)

    async def routez(self, query: Query) -> Fields:
        """Return the routes to the servers of the cluster."""
        return routez(self.server, RoutezParameters.of(query), self.clock)

    async def gatewayz(self, query: Query) -> Fields:
        """Return the gateways to other clusters."""
        if query.text("subs").lower() != "detail":
            query.flag("subs")
        query.flag("accs")
        return gatewayz(self.server, self.clock)

    async def leafz(self, query: Query) -> Fields:
        """Return the leaf node connections."""
        query.flag("subs")
        return leafz(self.server, self.clock)

    async def subsz(self, query: Query) -> Fields:
        """Return the subscriptions; only one such answer is made at a time."""
        options = SubszParameters.of(query)
        async with self._looking:
            return await subsz(self.server, options, self.clock, self.turns)

    async def accountz(self, query: Query) -> Fields:
        """Return the names of all accounts, or the details of one."""
        return accountz(self.server, query.text("acc"), self.clock)

    async def accstatz(self, query: Query) -> Fields:
        """Return the traffic of accounts."""
        accounts = shown_accounts(self.server, unused=query.flag("unused"))
        return accstatz(self.server, self.clock, accounts)

    async def jsz(self, query: Query) -> Fields:
        """Return the state of JetStream."""
        options = JszOptions.of(query)
        return await jsz(self.server, options, self.clock, self.turns, self._configs)

    async def account_jsz(self, query: Query) -> Fields:
        """Return the state of one account's JetStream."""
        options, engine = JszOptions.of(query), self.server.jetstream
        if engine is None:
            raise BadParameter("jetstream not enabled")
        if options.account not in engine.accounts:
            is_there = options.account in self.server.accounts
            why = "not jetstream enabled" if is_there else "not found"
            raise BadParameter(f'account "{options.account}" {why}')
        account = engine.accounts[options.account]
        return account_detail(account, options, self.server, self._configs)

    async def health(self, query: Query) -> tuple[int, Fields]:
        """Return the HTTP status code and the problems, as `/healthz` shows them."""
        return await self.turns.run(healthz(self.server, HealthzOptions.of(query)))

    async def ipqueuesz(self, query: Query) -> Fields:
        """Return the lengths of internal queues."""
        return ipqueuesz(self.server, every=query.flag("all"), prefix=query.text("queues"))

    async def expvarz(self, query: Query) -> Fields:
        """Return the process's command line and memory."""
        return expvarz()
