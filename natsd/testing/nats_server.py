"""A NATS server for a test, in a thread or in a process, and what a test wants of it.

    with natsd.testing.server(jetstream=True) as server:
        client = await nats.connect(server.client_url)

- The system chooses the ports, and a restart keeps them. Files are in a temporary directory of the
  server's own, which is removed at the end.
- A server given by keywords syncs its streams every two minutes, as nats-server does: a killed
  process loses nothing, and a test waits for no disk. `jetstream={"sync_interval": "always"}` is
  natsd's default.
- At the end a connection that the test has not closed is an error, `LeakedConnections`.
- The methods may be called from any thread. They block, mostly for a few milliseconds. The
  `wait_for_` methods refuse to block a running loop: a coroutine calls them in a thread, as in
  `await asyncio.to_thread(server.wait_for_log, "Slow Consumer")`.
"""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from natsd.testing.connection import Connection
from natsd.testing.errors import LeakedConnections, LoggedErrors
from natsd.testing.host import Host
from natsd.testing.launch import Addresses, Launch, isolated, needs_directory
from natsd.testing.requests import (
    CountRoutes,
    HasInterest,
    IsStreamLeader,
    ListConnections,
    MetaLeader,
    Reload,
)
from natsd.testing.server_log import ServerLog, ThreadLog
from natsd.testing.tested_clients import Connecting, TestedClients

if TYPE_CHECKING:
    import ssl

    from natsd.config import Options
    from natsd.testing.tls_files import TlsFiles

WAIT_S: Final = 5.0
LEAK_GRACE_S: Final = 2.0
"""Time in which the server notices the end of connections that the test has just closed."""
POLL_S: Final = 0.002
CONFIG_NAME: Final = "nats.conf"


class NatsServer:
    """A NATS server for a test; a context, synchronous or asynchronous, starts and stops it.

    `config` is a configuration file: its path, or as `str` its text. Keywords are settings of
    `natsd.Server`, over those of the file. With `process` the server is a process of its own, else
    a thread. `tls` True makes certificates; "verify" makes the server ask clients for theirs.
    `check_leaks` and `check_errors` tell whether open connections and logged errors are errors at
    the end. With `propagate_logs` the log of a thread goes to Python's logging too. The server's
    temporary directory is made in `parent` (None: in the system's). `clients` are those of all
    servers of a cluster (None: the server is alone).
    """

    def __init__(
        self,
        *,
        config: str | Path | None = None,
        process: bool = False,
        tls: "bool | Literal['verify'] | Mapping[str, Any]" = False,
        check_leaks: bool = True,
        check_errors: bool = False,
        propagate_logs: bool = False,
        parent: Path | None = None,
        clients: TestedClients | None = None,
        **settings: Any,
    ) -> None:
        self.check_leaks = check_leaks
        self.check_errors = check_errors
        self._parent = parent
        self._settings = settings
        self._config = config
        self._addresses = Addresses("", 0, 0)
        self._ports: dict[str, int] = {}  # that the latest start has asked for
        self._clients = TestedClients() if clients is None else clients
        self._is_paused = False
        self.tls_files: TlsFiles | None = None
        """What a server with `tls` True or "verify" has made."""
        if isinstance(tls, Mapping):
            self._settings["tls"] = tls
        elif tls:
            from natsd.testing.tls_files import make_tls_files

            self.tls_files = make_tls_files(self.directory, tls)
            self._settings["tls"] = self.tls_files.settings
        self._host = self._make_host(is_process=process, propagate_logs=propagate_logs)

    def _make_host(self, *, is_process: bool, propagate_logs: bool) -> Host:
        if is_process:
            from natsd.testing.process_host import ProcessHost

            return ProcessHost(self.directory / "log")
        from natsd.testing.thread_host import ThreadHost

        return ThreadHost(ThreadLog(propagates=propagate_logs))

    def __repr__(self) -> str:
        return f"<NatsServer {self.client_url or 'not started'}>"

    # ---- where it is

    @property
    def client_url(self) -> str:
        """URL for clients, such as `nats://127.0.0.1:40123`; the same after a restart."""
        return self._addresses.client_url

    @property
    def monitoring_url(self) -> str:
        """URL of the monitoring endpoints. Raises RuntimeError if they are off."""
        if not self._addresses.http_port:
            raise RuntimeError("monitoring is off; start the server with http_port=-1")
        return f"http://127.0.0.1:{self._addresses.http_port}"

    @property
    def route_url(self) -> str:
        """URL for other servers of the cluster. Raises RuntimeError if there is no cluster."""
        if not self._addresses.cluster_port:
            raise RuntimeError('there is no cluster; start the server with cluster={"port": -1}')
        return f"nats://127.0.0.1:{self._addresses.cluster_port}"

    @property
    def pid(self) -> int:
        """Pid of the server's process. Raises RuntimeError if it has none."""
        return self._host.pid

    @property
    def is_running(self) -> bool:
        """Whether the server runs; a paused one does."""
        return self._host.is_running

    @property
    def is_paused(self) -> bool:
        """Whether the server is held."""
        return self._is_paused and self._host.is_running

    @cached_property
    def directory(self) -> Path:
        """The server's directory, with its streams; removed at the end."""
        return Path(tempfile.mkdtemp(prefix="natsd-", dir=self._parent))

    @property
    def options(self) -> "Options":
        """What the server is started with. Raises OptionsError."""
        return self._launch().read()[0]

    @property
    def log(self) -> ServerLog:
        """What the server has logged: `log.lines`, `log.errors`, `"text" in log`."""
        return self._host.log

    # ---- life

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._remove_directory()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end(is_checked=error is None)

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._clients.close()
        await asyncio.to_thread(self._end, is_checked=error is None)

    def stop(self) -> None:
        """Stop in order, as SIGTERM does; does nothing if the server is stopped."""
        self._host.stop()

    def kill(self) -> None:
        """End the server's process at once, as SIGKILL does. Raises RuntimeError for a thread."""
        self._host.kill()

    def restart(self, **settings: Any) -> None:
        """Start again, on the same ports and with the same streams; stop before if it runs.

        Keywords change the settings that the server was started with.
        """
        self._settings = {**self._settings, **settings}
        self._host.stop()
        self._is_paused = False
        self._start()

    def pause(self) -> None:
        """Hold the server: connections stay open, and nothing is answered."""
        self._host.pause()
        self._is_paused = True

    def resume(self) -> None:
        """Let a paused server go on."""
        self._host.resume()
        self._is_paused = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hold the server during a block."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def reload(self, config: str | None = None, **settings: Any) -> list[str]:
        """Change settings of the running server; return the changes as texts.

        `config` is the new text of the configuration file; without it a file is read again.
        Keywords change the settings that the server was started with. Raises OptionsError, or
        ReloadError if a change needs a restart; nothing has changed then.
        """
        if config is not None and not isinstance(self._config, str):
            raise ValueError("only a server that was started with a text can reload another one")
        before = self._config, self._settings
        self._settings = {**self._settings, **settings}
        self._config = self._config if config is None else config
        try:
            changes: list[str] = self._host.ask(Reload(self._launch()))
            return changes
        except BaseException:
            self._config, self._settings = before
            raise

    def _start(self) -> None:
        if self.client_url:
            self._ports = {"port": int(self.client_url.rpartition(":")[2])}
        if self._addresses.http_port:
            self._ports["http_port"] = self._addresses.http_port
        if self._addresses.cluster_port:
            self._ports["cluster.port"] = self._addresses.cluster_port
        self._addresses = self._host.start(self._launch())

    def _launch(self) -> Launch:
        """Return what the server is started with, or reloaded."""
        launch = isolated(Launch({**self._settings, **self._ports}, self._config_path()))
        if needs_directory(launch):
            return launch.with_settings(store_dir=str(self.directory))
        return launch

    def _config_path(self) -> Path | None:
        """Return the configuration file; a text is written to a file first."""
        if not isinstance(self._config, str):
            return self._config
        path = self.directory / CONFIG_NAME
        path.write_text(self._config)
        return path

    def _end(self, *, is_checked: bool) -> None:
        """Close the clients, check, stop, and remove the directory.

        Raises LeakedConnections and LoggedErrors, only if `is_checked`.
        """
        errors: list[Exception] = []
        try:
            self._host.resume()
            self._clients.close_others()
            errors += self.leaks() if is_checked else ()
            self._host.stop()
            errors += self.logged_errors() if is_checked else ()
        finally:
            self.release()
        raise_all(errors, "the end of a server")

    def leaks(self) -> list[Exception]:
        """Return the error that connections are open, if they may not be."""
        if not self.check_leaks or not self._host.is_running:
            return []
        leaked = self._leaked_connections()
        return [LeakedConnections(leaked)] if leaked else []

    def logged_errors(self) -> list[Exception]:
        """Return the error that errors were logged, if they may not be."""
        return [LoggedErrors(self.log.errors)] if self.check_errors and self.log.errors else []

    def release(self) -> None:
        """Stop, keep the log, and remove the directory."""
        try:
            self._host.stop()
        finally:
            self.log.keep()
            self._remove_directory()

    def _leaked_connections(self) -> list[Connection]:
        give_up_at = time.monotonic() + LEAK_GRACE_S
        while True:
            # Those of a running loop, which may close them yet.
            expected = self._clients.open_cids(self.client_url)
            leaked = [each for each in self.connections() if each.cid not in expected]
            if not leaked or time.monotonic() > give_up_at:
                return leaked
            time.sleep(POLL_S)

    def _remove_directory(self) -> None:
        if "directory" in self.__dict__:
            shutil.rmtree(self.directory, ignore_errors=True)

    # ---- clients

    def connect(self, **settings: Any) -> Connecting:
        """Connect nats-py, as `await server.connect()` or `async with server.connect() as client`.

        Keywords are those of `nats.connect`; `servers`, and `tls` for a server that has made
        certificates, have defaults. The client is closed at the end of the block, or of the
        server. Raises ImportError if nats-py is not installed.
        """
        settings.setdefault("servers", self.client_url)
        if self.tls_files is not None:
            settings.setdefault("tls", self.ssl_context())
        return Connecting(self._clients, settings)

    def ssl_context(self) -> "ssl.SSLContext":
        """Return a client's context for the server's certificates, with a certificate to show.

        Raises RuntimeError unless the server was started with `tls` True or "verify".
        """
        if self.tls_files is None:
            raise RuntimeError("the server has made no certificates; start it with tls=True")
        return self.tls_files.client_context()

    def connections(self) -> list[Connection]:
        """Return the open client connections."""
        connections: list[Connection] = self._host.ask(ListConnections())
        return connections

    def routes(self) -> dict[str, int]:
        """Return the connections to other servers: how many, by the other server's name."""
        routes: dict[str, int] = self._host.ask(CountRoutes())
        return routes

    def meta_leader(self) -> tuple[str, int]:
        """Return who leads JetStream of the cluster, and the number of servers that take part."""
        found: tuple[str, int] = self._host.ask(MetaLeader())
        return found

    def leads(self, stream: str, account: str = "$G") -> bool:
        """Return whether this server of a cluster leads a stream."""
        return bool(self._host.ask(IsStreamLeader(stream, account)))

    def has_interest(self, subject: str, account: str = "$G") -> bool:
        """Return whether a message to the subject would reach a subscription of any server."""
        answer: bool = self._host.ask(HasInterest(subject, account))
        return answer

    def wait_for_connections(self, count: int, timeout: float = WAIT_S) -> None:
        """Wait until so many connections are open. Raises TimeoutError after `timeout` seconds."""
        wait_until(
            lambda: len(self.connections()) == count,
            timeout,
            lambda: f"{len(self.connections())} connections are open, not {count}",
        )

    def wait_for_subscription(self, subject: str, count: int = 1, timeout: float = WAIT_S) -> None:
        """Wait until at least `count` subscriptions have the subject.

        Raises TimeoutError after `timeout` seconds.
        """
        wait_until(
            lambda: self._subjects().count(subject) >= count,
            timeout,
            lambda: f"nobody subscribed to {subject}, only to {sorted(set(self._subjects()))}",
        )

    def wait_for_log(self, text: str, timeout: float = WAIT_S) -> None:
        """Wait until the text is logged. Raises TimeoutError after `timeout` seconds."""
        wait_until(lambda: text in self.log, timeout, lambda: f"not logged: {text}\n{self.log}")

    def _subjects(self) -> list[str]:
        return [subject for each in self.connections() for subject in each.subscriptions]


def wait_until(condition: Callable[[], bool], timeout_s: float, told: Callable[[], str]) -> None:
    """Wait until the condition holds. Raises TimeoutError, with what is `told`, after the time."""
    if asyncio._get_running_loop() is not None:
        raise RuntimeError(
            "a wait would block the running loop; use `await asyncio.to_thread(server."
            "wait_for_log, ...)`"
        )
    give_up_at = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"after {timeout_s:g} s: {told()}")
        time.sleep(POLL_S)


def raise_all(errors: list[Exception], what: str) -> None:
    """Raise the errors, several of them as a group with the text `what`."""
    if len(errors) > 1:
        raise ExceptionGroup(what, errors)
    if errors:
        raise errors[0]


server: Final = NatsServer
"""Starts a server for a test: `with natsd.testing.server() as server`."""
