"""The configurations of the rows that need one: every server gets the same file.

A setup's file is JSON, which every reader of NATS's configuration language accepts. It is written
into a directory of its own, with its certificate, and is given to the server as `-c FILE`. A server
that cannot be given a file, or does not start with it, makes the row void, with the reason.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from natsd.bench.access import Access
from natsd.bench.arms import HOST, AnyArm, ArmError, BenchServer, Configurable, free_port
from natsd.bench.cluster import SETUP, running_pair
from natsd.bench.config_file import Settings, write_config
from natsd.bench.replicated.servers import ALWAYS, DEFAULT, running_trio
from natsd.bench.wire import LoadError

SUBJECT: Final = "bench.data"
MAPPED: Final = "bench.mapped"
RULES: Final = 50
MANY_USERS: Final = 10_000
LOGIN_TIMEOUT: Final = 20
"""Seconds: also a busy machine opens its connections in that time."""
USER: Final = Access("bench", "secret")
RULED: Final = Access("ruled", "secret")
SECURE: Final = Access(tls=True)
EXPORTER: Final = Access("exporter", "secret")
IMPORTER: Final = Access("importer", "secret")


@runtime_checkable
class NeedsSetup(Protocol):
    """A scenario whose servers need a configuration."""

    @property
    def setup(self) -> str:
        """Name of the setup in `SETUPS`; empty: none is needed."""


@contextmanager
def running(arm: AnyArm, scenario: object) -> Iterator[BenchServer]:
    """Run the arm's server with the scenario's setup, if it needs one."""
    setup = scenario.setup if isinstance(scenario, NeedsSetup) else ""
    with ExitStack() as stack:
        if not setup:
            yield stack.enter_context(arm.running())
            return
        if not isinstance(arm, Configurable):
            yield unusable("a server that runs already cannot be given a configuration")
            return
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="natsd-bench-")))
        if setup in CLUSTERS:
            try:
                yield stack.enter_context(CLUSTERS[setup](arm, directory))
            except (ArmError, LoadError) as error:
                yield unusable(f"in a cluster {error}")
            return
        config = directory / "server.json"
        write_config(config, SETUPS[setup](directory))
        try:
            server = stack.enter_context(arm.configured(config).running())
        except ArmError as error:
            yield unusable(f"with its configuration {error}")
            return
        server.config = config
        yield server


def unusable(reason: str) -> BenchServer:
    """Return a server on which a run is void for this reason."""
    return BenchServer("", 0, {"version": "?"}, unsupported=reason)


def _login(access: Access) -> Settings:
    return {"user": access.user, "password": access.password}


def tls(directory: Path) -> Settings:
    """Return a server with TLS for all clients."""
    from natsd.testing.certificates import Authority

    return {"tls": {**Authority(directory).sign("server").settings, "timeout": "20s"}}


def users(_: Path) -> Settings:
    """Return a server with one user."""
    return {"authorization": {**_login(USER), "timeout": LOGIN_TIMEOUT}}


def permissions(_: Path) -> Settings:
    """Return a server with a user without rules, and one with many that allow the subject."""
    allowed = [f"allowed.{number}.>" for number in range(RULES - 1)]
    rules = {
        "allow": [*allowed, "bench.>"],
        "deny": [f"denied.{number}.*" for number in range(RULES)],
    }
    ruled = {**_login(RULED), "permissions": {"publish": rules}}
    return {"authorization": {"users": [_login(USER), ruled]}}


def importing(_: Path) -> Settings:
    """Return a server with an account that exports a stream, and one that imports it."""
    exported = {"stream": "bench.>"}
    imported = {"stream": {"account": "EXPORTER", "subject": "bench.>"}}
    return {
        "accounts": {
            "EXPORTER": {"users": [_login(EXPORTER)], "exports": [exported]},
            "IMPORTER": {"users": [_login(IMPORTER)], "imports": [imported]},
        }
    }


def mapping(_: Path) -> Settings:
    """Return a server that maps the subject of the load to another one."""
    return {"mappings": {SUBJECT: MAPPED}}


def many_users(_: Path, more: int = 0) -> Settings:
    """Return a server with very many users, and `more` of them."""
    some = [
        {"user": f"user{number:05d}", "password": "secret"} for number in range(MANY_USERS + more)
    ]
    return {"authorization": {"users": some}}


def monitored(directory: Path) -> Settings:
    """Return a server with JetStream and a monitoring port."""
    return {"http": f"{HOST}:{free_port()}", "jetstream": {"store_dir": str(directory / "store")}}


def jwt(_: Path) -> Settings:
    """Return a server in operator mode, whose users log in with JWTs; see `credentials`."""
    from natsd.bench.credentials import operator_settings

    return {**operator_settings(), "authorization": {"timeout": LOGIN_TIMEOUT}}


SETUPS: Final[Mapping[str, Callable[[Path], Settings]]] = {
    "tls": tls,
    "users": users,
    "permissions": permissions,
    "importing": importing,
    "mapping": mapping,
    "many-users": many_users,
    "monitored": monitored,
    "jwt": jwt,
}

Running = Callable[[Configurable, Path], AbstractContextManager[BenchServer]]
CLUSTERS: Final[Mapping[str, Running]] = {
    SETUP: running_pair,
    DEFAULT: running_trio,
    ALWAYS: partial(running_trio, sync="always"),
}
