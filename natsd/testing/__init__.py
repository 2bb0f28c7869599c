"""NATS servers for tests: fixtures of pytest, the same servers without pytest, and their keys.

    def test_greeting(natsd_server):                       # a fixture of the plugin
        greet(natsd_server.client_url)

    with natsd.testing.server(jetstream=True) as server:   # without pytest
        greet(server.client_url)

The fixtures are in plugin.py. Names are imported on first use, so that a test run that starts no
server imports nothing for it.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from natsd.testing.certificates import Authority as Authority
    from natsd.testing.certificates import Pair as Pair
    from natsd.testing.connection import Connection as Connection
    from natsd.testing.errors import LeakedConnections as LeakedConnections
    from natsd.testing.errors import LoggedErrors as LoggedErrors
    from natsd.testing.errors import ProcessError as ProcessError
    from natsd.testing.fixtures import ClusterFactory as ClusterFactory
    from natsd.testing.fixtures import ServerFactory as ServerFactory
    from natsd.testing.fixtures import cluster_fixture as cluster_fixture
    from natsd.testing.fixtures import fixture as fixture
    from natsd.testing.jwts import Operator as Operator
    from natsd.testing.nats_cluster import NatsCluster as NatsCluster
    from natsd.testing.nats_cluster import cluster as cluster
    from natsd.testing.nats_server import NatsServer as NatsServer
    from natsd.testing.nats_server import server as server
    from natsd.testing.server_log import ServerLog as ServerLog

_MODULES: Final = {
    "Authority": "certificates",
    "ClusterFactory": "fixtures",
    "Connection": "connection",
    "LeakedConnections": "errors",
    "LoggedErrors": "errors",
    "NatsCluster": "nats_cluster",
    "NatsServer": "nats_server",
    "Operator": "jwts",
    "Pair": "certificates",
    "ProcessError": "errors",
    "ServerFactory": "fixtures",
    "ServerLog": "server_log",
    "cluster": "nats_cluster",
    "cluster_fixture": "fixtures",
    "fixture": "fixtures",
    "server": "nats_server",
}
"""The module of each public name."""

__all__ = [
    "Authority",
    "ClusterFactory",
    "Connection",
    "LeakedConnections",
    "LoggedErrors",
    "NatsCluster",
    "NatsServer",
    "Operator",
    "Pair",
    "ProcessError",
    "ServerFactory",
    "ServerLog",
    "cluster",
    "cluster_fixture",
    "fixture",
    "server",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'natsd.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(f"natsd.testing.{_MODULES[name]}"), name)
