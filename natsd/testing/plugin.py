"""The plugin of pytest: its fixtures, its marker and its options (docs/testing.md).

pytest imports this file at each start, if natsd is installed. So it imports nothing, and what the
fixtures need is imported when a test uses one.
"""

import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from natsd.testing.fixtures import ClusterFactory, ServerFactory
    from natsd.testing.nats_cluster import NatsCluster
    from natsd.testing.nats_server import NatsServer

_MARKER = (
    "natsd(**options): options of this test's servers, such as jetstream=True, process=True or "
    "check_leaks=False"
)


class PlainImports:
    """Finder that imports natsd's modules as they are, without pytest's rewriting of asserts.

    pytest rewrites all modules of a package that has a plugin: this took a second in the first
    run, and in each one that may not write bytecode.
    """

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module of natsd; None: another finder is asked."""
        return PathFinder.find_spec(name, path, target) if name.startswith("natsd.") else None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of all servers."""
    sys.meta_path.insert(0, PlainImports)
    group = parser.getgroup("natsd")
    for flag, text in {
        "--natsd-process": "start NATS servers as processes of their own",
        "--natsd-allow-leaks": "let tests leave connections to NATS servers open",
        "--natsd-check-errors": "fail a test whose NATS server has logged an error",
    }.items():
        group.addoption(
            flag, action="store_true", dest=flag[2:].replace("-", "_"), default=False, help=text
        )
    parser.addini(
        "natsd_process", "start NATS servers as processes of their own", "bool", default=False
    )
    parser.addini(
        "natsd_check_leaks",
        "fail a test that leaves connections to a NATS server open",
        "bool",
        default=True,
    )
    parser.addini(
        "natsd_check_errors",
        "fail a test whose NATS server has logged an error",
        "bool",
        default=False,
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", _MARKER)


def pytest_unconfigure() -> None:
    """Leave the imports of the process as they were."""
    sys.meta_path.remove(PlainImports)


@pytest.fixture
def natsd_factory(request: pytest.FixtureRequest) -> "Iterator[ServerFactory]":
    """Start NATS servers for this test: `natsd_factory(jetstream=True, process=True, ...)`."""
    from natsd.testing.fixtures import running

    with running(request) as start:
        yield start


@pytest.fixture
def natsd_server(request: pytest.FixtureRequest, natsd_factory: "ServerFactory") -> "NatsServer":
    """Return a NATS server of this test alone, on a port of the system's choice."""
    from natsd.testing.fixtures import marked_options

    return natsd_factory(**marked_options(request))


@pytest.fixture
def natsd_jetstream(request: pytest.FixtureRequest, natsd_factory: "ServerFactory") -> "NatsServer":
    """Return a NATS server of this test alone with JetStream, whose streams are removed with it."""
    from natsd.testing.fixtures import marked_options

    return natsd_factory(**{"jetstream": True, **marked_options(request)})


@pytest.fixture
def natsd_cluster_factory(request: pytest.FixtureRequest) -> "Iterator[ClusterFactory]":
    """Start clusters for this test: `natsd_cluster_factory(5, process=True, ...)`."""
    from natsd.testing.fixtures import clusters_running

    with clusters_running(request) as start:
        yield start


@pytest.fixture
def natsd_cluster(
    request: pytest.FixtureRequest, natsd_cluster_factory: "ClusterFactory"
) -> "NatsCluster":
    """Return a cluster of three NATS servers of this test alone, a full mesh."""
    from natsd.testing.fixtures import marked_options

    return natsd_cluster_factory(**marked_options(request))
