"""One server of a local cluster: its directory, and its configuration file.

    n1/nats.conf    written once, read at each start; whoever runs the cluster may change it
    n1/log          what the server has logged, of all its starts
    n1/pid          its process id, while it runs

The file is the only place where names and ports are kept. nats-server reads it as well.
"""

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from natsd.local_cluster.errors import LocalClusterError
from natsd.local_cluster.mesh import links_per_server
from natsd.local_cluster.process import ServerProcess

if TYPE_CHECKING:
    from natsd.local_cluster.plan import Plan, Ports

CONFIG: Final = "nats.conf"
LOG: Final = "log"
PID: Final = "pid"
STORE: Final = "jetstream"
EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
"""Addresses that stand for all of a machine, and the one by which this machine reaches itself."""


class Member:
    """A server of the cluster, as its configuration file describes it."""

    def __init__(self, directory: Path) -> None:
        """Read the file. Raises LocalClusterError if it has mistakes, or is no cluster's."""
        from natsd.config import OptionsError
        from natsd.config.load import error_lines, load_options

        self.directory = directory
        self.config = directory / CONFIG
        try:
            options = load_options(self.config).options
        except OptionsError as error:
            raise LocalClusterError("; ".join(error_lines(error))) from None
        if options.cluster is None or not options.has_cluster:
            raise LocalClusterError(f"{self.config} has no cluster")
        if not options.http_port:
            raise LocalClusterError(f"{self.config} has no monitoring port (http)")
        self.options = options
        self.name = options.server_name
        self.cluster_name = options.cluster.name
        self.log = directory / LOG
        self.process = ServerProcess(self.config, options.pid_file or directory / PID, self.log)

    @property
    def client_url(self) -> str:
        """URL for clients."""
        scheme = "tls" if self.options.tls and not self.options.allow_non_tls else "nats"
        return f"{scheme}://{address(self.options.host, self.options.port)}"

    @property
    def route_url(self) -> str:
        """URL for the other servers."""
        assert self.options.cluster is not None
        return f"nats://{address(self.options.cluster.host, self.options.cluster.port)}"

    @property
    def monitoring_url(self) -> str:
        """URL of the monitoring endpoints."""
        host = self.options.http_host or self.options.host
        return f"http://{address(host, self.options.http_port)}"

    @property
    def ports(self) -> tuple[int, int, int]:
        """The ports of clients, routes and monitoring."""
        assert self.options.cluster is not None
        return self.options.port, self.options.cluster.port, self.options.http_port

    @property
    def logged_bytes(self) -> int:
        """Size of the log; 0: there is none."""
        with contextlib.suppress(FileNotFoundError):
            return self.log.stat().st_size
        return 0

    @property
    def links_per_server(self) -> int:
        """How many connections this server has to each other one."""
        return links_per_server(self.options)


def address(host: str, port: int) -> str:
    """Return where this machine reaches a port that is listened on."""
    host = EVERYWHERE.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def config_text(
    plan: "Plan", name: str, directory: Path, ports: "Ports", urls: Sequence[str]
) -> str:
    """Return the configuration of a server; `urls` are those of the other servers' routes."""
    routes = "".join(f"\n    {_quoted(url)}" for url in urls)
    lines = [
        f"# Server {name} of the cluster {plan.name}. `natsd cluster up` wrote this file. It may",
        "# be changed, and is read at each start.",
        "#",
        f"#   natsd -c {directory / CONFIG}",
        "#",
        "# starts the server by hand; nats-server takes the file, too.",
        "",
        f"server_name: {_quoted(name)}",
        f"listen: {_quoted(_listen(plan.host, ports.clients))}        # clients",
        f"http: {_quoted(_listen(plan.host, ports.monitoring))}          # /varz, /routez, …",
        f"pid_file: {_quoted(str(directory / PID))}",
        "",
        "cluster {",
        f"  name: {_quoted(plan.name)}",
        f"  listen: {_quoted(_listen(plan.host, ports.routes))}      # the other servers",
        "  # One server that runs is enough to find all; each is named, since any may be down.",
        f"  routes: [{routes}\n  ]",
        "}",
        "",
        "jetstream {",
        f"  store_dir: {_quoted(str(directory / STORE))}",
        "}",
    ]
    if plan.include is not None:
        path = os.path.relpath(plan.include, directory)  # nats-server takes no absolute one
        lines += ["", f"include {_quoted(path)}"]
    return "\n".join(lines) + "\n"


def _listen(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
