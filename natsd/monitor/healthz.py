"""`/healthz`: whether the server and its JetStream work.

- A server that does not accept connections yet is not healthy: it still recovers its streams.
- A stream that could not be recovered, or whose disk failed, is a problem of its account.
- With `details` all problems are listed, otherwise only the first one.

Sources: nats-server's `Server.healthz` and `HealthStatus`: texts and status codes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from natsd.core.steps import Steps
from natsd.monitor.observed import ObservedServer
from natsd.monitor.query import Query

if TYPE_CHECKING:
    from natsd.jetstream.account import JetStreamAccount
    from natsd.jetstream.jetstream import JetStream
    from natsd.jetstream.meta_group.cluster import JetStreamCluster

OK: Final = 200
BAD_REQUEST: Final = 400
NOT_FOUND: Final = 404
NOT_READY: Final = 500
UNAVAILABLE: Final = 503

STREAMS_PER_STEP: Final = 50

_NOT_ENABLED: Final = "JetStream not enabled (10076)"


@dataclass(frozen=True, slots=True)
class HealthzOptions:
    """The parameters of a `/healthz` request."""

    enabled_only: bool
    server_only: bool
    meta_only: bool
    account: str
    stream: str
    consumer: str
    details: bool

    @classmethod
    def of(cls, query: Query) -> "HealthzOptions":
        """Read the parameters; raises BadParameter."""
        old_name = query.flag("js-enabled")
        enabled_only = query.flag("js-enabled-only") or old_name
        server_only = query.flag("js-server-only")
        return cls(
            enabled_only=enabled_only,
            server_only=server_only,
            meta_only=query.flag("js-meta-only"),
            account=query.text("account"),
            stream=query.text("stream"),
            consumer=query.text("consumer"),
            details=query.flag("details"),
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem; `code` is the HTTP status, `status` the text shown without details."""

    kind: str
    text: str
    code: int = UNAVAILABLE
    status: str = "unavailable"
    account: str = ""
    stream: str = ""
    consumer: str = ""

    def row(self) -> dict[str, str]:
        """Return the problem as `errors` lists it."""
        shown = {
            "type": self.kind,
            "account": self.account,
            "stream": self.stream,
            "consumer": self.consumer,
            "error": self.text,
        }
        return {name: value for name, value in shown.items() if value}


def healthz(server: ObservedServer, options: HealthzOptions) -> Steps[tuple[int, dict[str, Any]]]:
    """Return, in steps, the HTTP status code and the answer of `/healthz`."""
    problems: list[Problem] = []
    for found in _problems(server, options):
        if found is None:
            yield
        else:
            problems.append(found)
    if not problems:
        return OK, {"status": "ok"}
    first = problems[0]
    if options.details:
        return first.code, {"status": "error", "errors": [each.row() for each in problems]}
    return first.code, {"status": first.status, "error": first.text}


def _problems(server: ObservedServer, options: HealthzOptions) -> Iterator[Problem | None]:
    """Yield the problems, in the order in which nats-server checks; None after each step."""
    for part, whole in (("stream", "account"), ("consumer", "stream")):
        if getattr(options, part) and not getattr(options, whole):
            text = f'"{whole}" must not be empty when checking {part} health'
            yield Problem("BAD_REQUEST", text, BAD_REQUEST, "error")
            return
    if not server.is_ready:
        yield Problem("CONNECTION", "server is not accepting connections", NOT_READY, "error")
        return
    if options.server_only or not server.options.jetstream.enabled:
        return
    engine = server.jetstream
    if engine is None:
        yield Problem("JETSTREAM", _NOT_ENABLED)
        return
    if engine.cluster is not None and not options.enabled_only:
        yield from _meta(engine.cluster)
    if not (options.enabled_only or options.meta_only):
        yield from _assets(engine, options)


def _meta(cluster: "JetStreamCluster") -> Iterator[Problem | None]:
    if not cluster.meta.leader:
        text = "JetStream has not established contact with a meta leader"
        yield Problem("JETSTREAM", text)
    elif cluster.assignments.failure is not None:
        text = f"JetStream is not current with the meta leader: {cluster.assignments.failure}"
        yield Problem("JETSTREAM", text)


def _assets(engine: "JetStream", options: HealthzOptions) -> Iterator[Problem | None]:
    name = options.account
    if name and name not in engine.accounts:
        text = f'JetStream account "{name}" not found'
        yield Problem("ACCOUNT", text, NOT_FOUND, account=name)
        return
    for account in [engine.accounts[name]] if name else list(engine.accounts.values()):
        yield from _streams(account, options)
        if engine.cluster is not None:
            yield from _replicas(engine.cluster, account.name, options.stream)
        yield None


def _replicas(cluster: "JetStreamCluster", account: str, stream: str) -> Iterator[Problem | None]:
    """Yield the replicas of this server that are not there, have failed, or have to catch up."""
    for name, reason in cluster.streams.problems(account):
        if stream in ("", name):
            text = f"JetStream stream '{account} > {name}' is not current: {reason}"
            yield Problem("STREAM", text, account=account, stream=name)


def _streams(account: "JetStreamAccount", options: HealthzOptions) -> Iterator[Problem | None]:
    wanted = options.stream
    if wanted and wanted not in account.streams and wanted not in account.offline:
        text = f'JetStream stream "{wanted}" not found on account "{account.name}"'
        yield Problem("STREAM", text, NOT_FOUND, account=account.name, stream=wanted)
        return
    for name in list(account.offline):
        if wanted in ("", name):
            text = f"JetStream stream '{account.name} > {name}' could not be recovered"
            yield Problem("STREAM", text, account=account.name, stream=name)
    for index, (name, stream) in enumerate(list(account.streams.items())):
        if index % STREAMS_PER_STEP == STREAMS_PER_STEP - 1:
            yield None
        if wanted in ("", name) and (error := stream.store.write_error):
            text = f"JetStream stream '{account.name} > {name}' write error: {error}"
            yield Problem("STREAM", text, account=account.name, stream=name)
    consumer = options.consumer
    if wanted in account.streams and consumer and consumer not in account.streams[wanted].consumers:
        text = (
            f'JetStream consumer "{consumer}" not found for stream "{wanted}"'
            f' on account "{account.name}"'
        )
        yield Problem("CONSUMER", text, NOT_FOUND, "unavailable", account.name, wanted, consumer)
