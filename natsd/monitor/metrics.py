"""`/metrics`: the server's numbers for Prometheus, under the names of the Prometheus NATS exporter.

    server, accounts, connections, streams ──rows, in steps──▶ text, in pieces ──▶ gzip ──▶ peer
                                         prometheus-client's registry ──text──▶ ┘

- A request takes the options that the exporter takes as flags; see MetricsOptions.
- Everything is read in turns (turns.py); the text is made and compressed while it is written.
- cramjam compresses a piece in 10 µs, three times as fast as zlib; a thread would cost more.
- prometheus-client is imported in a thread, by the first scrape.
"""

import asyncio
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final, cast, get_args

import cramjam

from natsd.monitor.account_metrics import DETAILS, TRAFFIC, account_rows
from natsd.monitor.answers import Answers
from natsd.monitor.connection_metrics import CONNECTIONS, connection_rows
from natsd.monitor.jetstream_metrics import Depth, jetstream_rows
from natsd.monitor.metric_text import families
from natsd.monitor.query import BadParameter, Query
from natsd.monitor.route_metrics import INFO, ROUTES, route_rows
from natsd.monitor.server_metrics import health, leaf_nodes, numbers

if TYPE_CHECKING:
    from natsd.monitor.process_metrics import ProcessRegistry

PREFIX: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
PREFIX_BYTES_MAX: Final = 64
DEPTHS: Final = {
    "": "consumers",
    "all": "consumers",
    "consumer": "consumers",
    "stream": "streams",
    "account": "accounts",
} | {depth: depth for depth in get_args(Depth)}
GZIP_LEVEL: Final = 1
GZIP_BYTES: Final = 512 * 1024
"""Bytes of text after which what they were compressed to is sent."""


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """The parameters of a `/metrics` request: flags of the Prometheus NATS exporter."""

    prefix: str
    """What the names begin with, in place of `gnatsd` and `jetstream`; empty: with these."""
    use_internal_server_name: bool
    """Whether the label `server_id` is the name of the server."""
    connz_detailed: bool
    """Whether each connection has its own samples."""
    jsz: Depth
    """How much is told about JetStream."""

    @classmethod
    def of(cls, query: Query) -> "MetricsOptions":
        """Read the parameters; raises BadParameter."""
        prefix, jsz = query.text("prefix"), query.text("jsz").lower()
        if prefix and (len(prefix) > PREFIX_BYTES_MAX or not PREFIX.fullmatch(prefix)):
            raise BadParameter("invalid prefix")
        if jsz not in DEPTHS:
            raise BadParameter("invalid jsz filter")
        return cls(
            prefix=prefix,
            use_internal_server_name=query.flag("use_internal_server_name"),
            connz_detailed=query.flag("connz_detailed"),
            jsz=cast(Depth, DEPTHS[jsz]),
        )


@dataclass(frozen=True, slots=True)
class Exposition:
    """The answer to `/metrics`: its text in pieces, and the headers that describe it."""

    pieces: Iterator[bytes]
    headers: dict[str, str]


class Metrics:
    """Makes the answers to `/metrics` of one server, until `close`."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._process: ProcessRegistry | None = None

    async def exposition(self, query: Query) -> Exposition:
        """Return the answer; raises BadParameter."""
        options = MetricsOptions.of(query)
        await asyncio.to_thread(importlib.import_module, "natsd.monitor.process_metrics")
        from prometheus_client.exposition import choose_encoder, gzip_accepted

        from natsd.monitor.process_metrics import ProcessRegistry

        if self._process is None:
            self._process = ProcessRegistry(asyncio.get_running_loop())
        encode, content_type = choose_encoder(query.headers.get("Accept", ""))
        own = await self._own(options)
        # In a thread: it lists the descriptors of the process, and there may be thousands.
        process = await asyncio.to_thread(encode, self._process.registry)
        text = chain(own, (process,))
        shown = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
        if not gzip_accepted(query.headers.get("Accept-Encoding", "")):
            return Exposition(text, shown)
        return Exposition(gzipped(text), shown | {"Content-Encoding": "gzip"})

    async def _own(self, options: MetricsOptions) -> Iterator[bytes]:
        """Return the text of what natsd tells of itself, in pieces."""
        answers, server = self._answers, self._answers.server
        server_id = server.name if options.use_internal_server_name else server.id
        core = f"{options.prefix or 'gnatsd'}_"
        run = answers.turns.run
        jetstream = await run(jetstream_rows(server, server_id, options.jsz))
        traffic, details = await run(account_rows(server, server_id))
        detailed = options.connz_detailed
        connections = connection_rows(server, server_id, answers.clock, detailed=detailed)
        infos, routes = route_rows(server, server_id, answers.clock)
        every = Query({})
        leafs = (await answers.leafz(every))["leafnodes"]
        return chain(
            numbers(f"{core}varz_", server_id, await answers.varz(every)),
            numbers(f"{core}subsz_", server_id, await answers.subsz(every)),
            numbers(f"{core}routez_", server_id, await answers.routez(every)),
            families(core, INFO, infos),
            families(core, ROUTES, routes),
            health(core, server_id, server),
            (leaf_nodes(core, server_id, leafs),),
            families(core, CONNECTIONS, await run(connections)),
            families(core, TRAFFIC, traffic),
            families(core, DETAILS, details),
            jetstream.text(f"{options.prefix or 'jetstream'}_"),
        )

    def close(self) -> None:
        """Stop what the first scrape began."""
        if self._process is not None:
            self._process.close()


def gzipped(text: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the text compressed, in as many pieces; most of them are empty."""
    compressor = cramjam.gzip.Compressor(GZIP_LEVEL)
    waiting_bytes = 0
    for piece in text:
        compressor.compress(piece)
        waiting_bytes += len(piece)
        if waiting_bytes < GZIP_BYTES:
            yield b""
        else:
            waiting_bytes = 0
            yield bytes(compressor.flush())
    yield bytes(compressor.finish())
