"""Servers as fixtures of pytest, with the options of markers, command line and configuration.

A fixture's options are, from weak to strong: those of pytest's configuration and command line, the
fixture's own, and those of the markers `natsd` of module, class and test.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Literal, Protocol

import pytest

from natsd.testing.errors import LeakedConnections, LoggedErrors, ProcessError
from natsd.testing.nats_server import NatsServer
from natsd.testing.reports import reports_of

if TYPE_CHECKING:
    from natsd.testing.nats_cluster import NatsCluster

Scope = Literal["session", "package", "module", "class", "function"]


class ServerFactory(Protocol):
    """Starts servers that run until the end of the test."""

    def __call__(self, **options: Any) -> NatsServer:
        """Start a server with the options of `natsd.testing.NatsServer`."""


class ClusterFactory(Protocol):
    """Starts clusters that run until the end of the test."""

    def __call__(self, servers: int = ..., **options: Any) -> "NatsCluster":
        """Start a cluster with the options of `natsd.testing.NatsCluster`."""


def fixture(*, scope: Scope = "function", name: str | None = None, **options: Any) -> Any:
    """Return a fixture that is a running server; `options` are those of `NatsServer`.

    `nats = natsd.testing.fixture(scope="session", jetstream=True)` in a conftest.py is the fixture
    `nats`, a server that all tests share.
    """

    @pytest.fixture(scope=scope, name=name)
    def natsd_fixture(request: pytest.FixtureRequest) -> Iterator[NatsServer]:
        with running(request) as start:
            yield start(**{**options, **marked_options(request)})

    return natsd_fixture


def cluster_fixture(*, scope: Scope = "function", name: str | None = None, **options: Any) -> Any:
    """Return a fixture that is a running cluster; `options` are those of `NatsCluster`."""

    @pytest.fixture(scope=scope, name=name)
    def natsd_fixture(request: pytest.FixtureRequest) -> "Iterator[NatsCluster]":
        with clusters_running(request) as start:
            yield start(**{**options, **marked_options(request)})

    return natsd_fixture


@contextmanager
def running(request: pytest.FixtureRequest) -> Iterator[ServerFactory]:
    """Give what starts servers; they end with the block, and then fail the test if they must."""
    with _ending(request.config) as begin:

        def start(**options: Any) -> NatsServer:
            server = NatsServer(**{**_defaults(request), **options})
            begin(server, [server])
            return server

        yield start


@contextmanager
def clusters_running(request: pytest.FixtureRequest) -> Iterator[ClusterFactory]:
    """Give what starts clusters; they end as servers do."""
    from natsd.testing.nats_cluster import SERVERS, NatsCluster

    with _ending(request.config) as begin:

        def start(servers: int = SERVERS, **options: Any) -> NatsCluster:
            cluster = NatsCluster(servers, **{**_defaults(request), **options})
            begin(cluster, cluster.servers)
            return cluster

        yield start


def _defaults(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the options that every server of the run has."""
    factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
    return {"parent": factory.getbasetemp(), **configured_options(request.config)}


class _Begin(Protocol):
    def __call__(self, which: "NatsServer | NatsCluster", servers: list[NatsServer]) -> None: ...


@contextmanager
def _ending(config: pytest.Config) -> Iterator[_Begin]:
    """Give what starts a server or a cluster, and ends it with the block."""
    failures: list[str] = []
    reports = reports_of(config)
    with ExitStack() as stack:  # which ends all of them, even if the end of one raises an error

        def begin(which: "NatsServer | NatsCluster", servers: list[NatsServer]) -> None:
            for server in servers:
                reports.add(server)
                stack.callback(reports.remove, server)
            which.__enter__()
            stack.callback(lambda: failures.extend(_failures(which)))

        yield begin
    if failures:
        pytest.fail("\n".join(failures), pytrace=False)


def _failures(which: "NatsServer | NatsCluster") -> list[str]:
    """End a server or a cluster; return what is wrong."""
    try:
        which.__exit__(None, None, None)
    except (LeakedConnections, LoggedErrors, ProcessError) as error:
        return [str(error)]
    except ExceptionGroup as error:
        return [str(each) for each in error.exceptions]
    return []


def configured_options(config: pytest.Config) -> dict[str, Any]:
    """Return the options that pytest's command line and configuration give to every server."""
    return {
        "process": config.getoption("natsd_process") or config.getini("natsd_process"),
        "check_leaks": not config.getoption("natsd_allow_leaks")
        and config.getini("natsd_check_leaks"),
        "check_errors": config.getoption("natsd_check_errors")
        or config.getini("natsd_check_errors"),
    }


def marked_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the options of the markers `natsd`; those of the test itself are the strongest."""
    options: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("natsd"))):
        options |= marker.kwargs
    return options
