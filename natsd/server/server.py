"""The server: builds its parts, starts them in order, stops them in reverse order.

    async with Server(port=-1) as server:            # on the running loop
        await nats.connect(server.client_url)

    with Server(port=-1, thread=True) as server:     # on a loop and a thread of its own
        ...

- Any number of servers may run in one process, on one loop or on several.
- A server that stopped, failed to start or was cancelled during its start leaves nothing behind: no
  socket, file, task or thread. It may be started again, with new counters; for port -1 the system
  picks a new port.
- JetStream has recovered before the first client connects. If there is nothing to recover, clients
  connect before its modules are imported, and their requests to it wait for that. A start returns
  when JetStream is ready. At the stop JetStream closes before the clients do, so that their pending
  requests are answered.
- Everything except `client_url` and the attributes that monitoring reads must be used on the
  server's own loop.
"""

import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from natsd.accounts import Account, AccountDirectory
from natsd.auth import Authenticator
from natsd.clients import Client
from natsd.clients.acceptor import Acceptor, refuse
from natsd.clients.listener import ListenError, bound_port, host_port, listen
from natsd.clients.pending_logins import PendingLogins
from natsd.config import Options, OptionsError, make_options
from natsd.config.resources import descriptors_for_clients, pending_bytes_max, with_store_dir
from natsd.core.network import Reactor, Settings, TrafficStats, has_poller
from natsd.core.reasons import ClosedReason, ErrorText
from natsd.monitor.events import SystemEvents
from natsd.monitor.services import Services
from natsd.server.accounts_part import AccountsPart
from natsd.server.banner import log_stopped, log_stopping
from natsd.server.identity import new_server_id, new_server_keys
from natsd.server.info import InfoLine
from natsd.server.jetstream import JetStreamPart
from natsd.server.limits import set_limits, sweep_seconds
from natsd.server.server_files import ServerFiles
from natsd.server.threaded import OwnThread

if TYPE_CHECKING:
    from natsd.accounts.account_links import AccountLinks
    from natsd.clients.closed import ClosedClient
    from natsd.clients.openings import Openings
    from natsd.clients.transport import TransportLink, Transports
    from natsd.cluster.cluster import Cluster
    from natsd.config.changes import OptionChange
    from natsd.config.loaded import LoadedConfig
    from natsd.jetstream.jetstream import JetStream
    from natsd.server.cluster_part import ClusterPart
    from natsd.server.log import DaemonLog
    from natsd.server.operator_mode import OperatorMode

logger = logging.getLogger("natsd.server")

FIRST_CLIENT_ID: Final = 5
"""nats-server's internal clients have the lower ids."""
BACKLOG: Final = 4096
"""Connections that the kernel queues until they are accepted."""
GREETING_TURNS: Final = 2
"""Turns of the loop in which the clients in the backlog get INFO before a long import begins."""
_ANY_ADDRESS: Final = ("", "0.0.0.0", "::")


class Server:
    """A NATS server. Keywords are the settings of `Options`; an invalid one raises OptionsError.

    With `thread` True the server runs on its own thread and loop. `authenticator` decides over the
    clients in place of the configured token or user. The start raises ListenError if a
    port is not available, OptionsError if a certificate cannot be used, FileError if the pid or
    ports file cannot be written, and JetStreamError if JetStream cannot start.
    """

    def __init__(
        self,
        options: Options | None = None,
        *,
        thread: bool = False,
        authenticator: Authenticator | None = None,
        **settings: Any,
    ) -> None:
        self.options = make_options(options, **settings)
        keys = new_server_keys(self.options)
        self.id = new_server_id() if keys is None else keys.pair.public
        self.name = self.options.server_name or self.id
        self.client_host = self.options.host
        self.client_port = 0
        self.clients: dict[int, Client] = {}
        self.accounts: AccountDirectory
        self.http_requests: dict[str, int] = {}
        self.logins = PendingLogins()
        self.openings: Openings | None = None
        self.settings = Settings()
        self._own_thread = OwnThread(self) if thread else None
        self._acceptor: Acceptor | None = None
        self._is_serving = False
        self._reloading = asyncio.Lock()
        self._lame_duck: asyncio.Task[None] | None = None
        self._transports: Transports | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._stopped: asyncio.Event | None = None
        self._started: asyncio.Event | None = None
        self.files = ServerFiles(self)
        self.log: DaemonLog | None = None
        self.config: LoadedConfig | None = None
        self._jetstream = JetStreamPart(self.options, self.name, self.id)
        self.accounts_part = AccountsPart(self, self._jetstream, keys, authenticator)
        self.cluster_part = self._make_cluster_part()  # None: the server is in no cluster
        self._jetstream.cluster_part = self.cluster_part
        self._services = Services(self, self.reload_file)
        self._events = SystemEvents(self)
        self._begin_afresh()

    def _make_cluster_part(self) -> "ClusterPart | None":
        if not self.options.has_cluster:
            return None
        from natsd.server import cluster_part

        return cluster_part.ClusterPart(self, self.accounts_part.make_stranger)

    def _begin_afresh(self) -> None:
        """Reset the start time, the counters and the ring of closed clients."""
        self.start_time = self.config_load_time = datetime.now(UTC)
        self.total_connections = 0
        self.closed_clients: deque[ClosedClient] = deque(maxlen=self.options.max_closed_clients)
        self._last_cid = FIRST_CLIENT_ID - 1
        self._last_event = 0

    # ---- life

    async def start(self) -> None:
        """Start the server; return when connections are accepted and JetStream is ready.

        Raises ListenError, OptionsError, FileError or JetStreamError; RuntimeError if the server is
        running.
        """
        if self._own_thread is not None:
            await self._own_thread.start()
        else:
            await self.start_here()

    async def stop(self) -> None:
        """Close all connections and stop; does nothing if the server has stopped."""
        if self._own_thread is not None:
            self._own_thread.ask_to_stop()
            await self.wait_closed()
        else:
            await self.stop_here()

    async def wait_closed(self) -> None:
        """Wait until the server has stopped; return at once if it was never started."""
        if self._own_thread is not None and not self._own_thread.is_current():
            await self._own_thread.wait_ended()
        elif self._stopped is not None:
            await self._stopped.wait()

    async def start_here(self) -> None:
        """Start on the running loop."""
        if self._stopped is not None and not self._stopped.is_set():
            raise RuntimeError("the server is running")
        self._begin_afresh()
        self._build()
        self._stopped, self._started = asyncio.Event(), asyncio.Event()
        try:
            self.files.announce()
            listener = self._listen()
            try:
                if self.cluster_part is not None:
                    self.cluster_part.listen()
                await self._start_parts(listener)
                if self.cluster_part is not None:
                    self.cluster_part.start()
            except BaseException:
                if not self._is_serving:
                    listener.close()
                raise
            self.files.complete()
        except BaseException:
            await self._undo_start()
            raise
        finally:
            self._started.set()

    async def _start_parts(self, listener: socket.socket) -> None:
        """Start monitoring and JetStream, and serve clients.

        If there is nothing to recover, clients are served at once, and their requests to JetStream
        wait until it is imported. Otherwise clients wait in the backlog until it has recovered, and
        monitoring starts after the import, which then blocks no request.
        """
        is_empty = await self._jetstream.prepare()
        if self.operator is not None:
            await self.operator.start(await asyncio.to_thread(self._jetstream.stored_accounts))
        if is_empty:
            self.files.open()
            self._jetstream.hold_requests(self.accounts)
            self._serve_clients(listener)
            for _ in range(GREETING_TURNS):
                await asyncio.sleep(0)
        await self._jetstream.load()
        if not is_empty:
            self.files.open()
        await self._jetstream.start(self.reactor, self.accounts)
        if not is_empty:
            self._serve_clients(listener)

    async def _undo_start(self) -> None:
        """Undo a start that failed or was cancelled."""
        await self.files.close()
        assert self._started is not None
        assert self._stopped is not None
        self._started.set()
        if self._is_serving:
            await self.stop_here()
            return
        await self._services.close()
        await self._jetstream.stop()
        if self.operator is not None:
            await self.operator.close()
        if self.cluster_part is not None:
            await self.cluster_part.close()
        self._close_connections()
        self._stopped.set()

    def _listen(self) -> socket.socket:
        """Return the listening socket for clients. Raises ListenError."""
        host, port = self.options.host, self.options.port
        try:
            return listen(host, port, backlog=BACKLOG)
        except ListenError as error:
            where = host_port(host, max(port, 0))
            raise ListenError(f'Error listening on port: {where}, "{error}"') from None

    def _build(self) -> None:
        """Create the reactor and the accounts."""
        options = self.options
        set_limits(self.settings, options)
        self.reactor = Reactor(
            asyncio.get_running_loop(),
            logger.exception,
            options.max_control_line,
            sweep_seconds(options),
            pending_bytes_max(options),
        )
        try:
            self.openings = self._make_openings()
        except OptionsError:
            self.reactor.close()
            raise
        self.accounts_part.build()
        self.accounts = self.accounts_part.accounts

    def _make_openings(self) -> "Openings | None":
        """Return what opens connections with TLS or a PROXY header. Raises TlsError."""
        if self.options.tls is None and not self.options.proxy_protocol:
            return None
        from natsd.clients.openings import Openings

        return Openings(self.options, self.reactor)

    def prepare_openings(self, options: Options) -> Callable[[], None]:
        """Return what makes new connections open as the options say. Raises OptionsError."""
        if self.openings is not None:
            return self.openings.prepare(options)
        if options.tls is None and not options.proxy_protocol:
            return lambda: None
        from natsd.clients.openings import Openings

        openings = Openings(options, self.reactor)
        return lambda: setattr(self, "openings", openings)

    def _serve_clients(self, listener: socket.socket) -> None:
        """Begin to accept clients and to answer monitoring requests over NATS."""
        self._services.start()
        self._events.start()
        loop = asyncio.get_running_loop()
        self.client_port = bound_port(listener)
        self._info = self._info_line()
        if not has_poller():
            from natsd.clients.transport import Transports

            self._transports = Transports(loop)
        self._acceptor = Acceptor(
            loop, listener, self._accepted, self._refused, descriptors_for_clients()
        )
        self._is_serving = True

    async def stop_here(self) -> None:
        """Stop on the loop of the start, after a start in progress has ended.

        Calls share one stop. If a caller is cancelled, the stop still continues to its end.
        """
        if self._started is not None:
            await self._started.wait()
        if self._is_serving:
            self._is_serving = False
            log_stopping()
            self._events.close()
            self._stop_listening()
            if self._lame_duck is not None and self._lame_duck is not asyncio.current_task():
                self._lame_duck.cancel()
            self._stopping = asyncio.create_task(self._finish_stopping(), name="natsd-stop")
        if self._stopping is not None:
            await asyncio.shield(self._stopping)

    def reload(self, options: Options | None = None, **settings: Any) -> "list[OptionChange]":
        """Change the settings of the running server, all that differ or none; return the changes.

        Without `options`, the keywords change the current ones. Raises OptionsError, or ReloadError
        if a change needs a restart; nothing has changed then. The resolver of operator mode changes
        only by `reload_file`.
        """
        if not self.is_ready:
            raise RuntimeError("the server is not running")
        options = make_options(options or self.options, **settings)
        if self.operator is not None:
            self.operator.check_unchanged(options)
        from natsd.server.reload import reload

        if self._own_thread is None or self._own_thread.is_current():
            return reload(self, options)
        return self._own_thread.call(partial(reload, self, options))

    async def reload_file(self) -> "list[OptionChange]":
        """Read the configuration file again and apply it, all that differs or nothing.

        Returns the changes. Raises OptionsError, or ReloadError if a change needs a restart or
        there is no file; nothing has changed then.
        """
        from natsd.core.steps import run_cooperatively
        from natsd.server.log import LogError
        from natsd.server.reload import ReloadError, reload, reload_steps
        from natsd.server.start_checks import load_checked

        if self.config is None or self.config.path is None:
            raise ReloadError("can only reload config when a file is provided using -c or --config")
        async with self._reloading:
            loaded = await asyncio.to_thread(load_checked, self.config.path, self.config.flags)
            options = with_store_dir(loaded.options)
            if self.log is not None:
                try:
                    await asyncio.to_thread(self.log.check, options)
                except LogError as error:
                    raise ReloadError(str(error)) from error
            async with AsyncExitStack() as changing:
                if self.operator is not None:
                    await changing.enter_async_context(self.operator.changing(options))
                if self._own_thread is None or self._own_thread.is_current():
                    steps = reload_steps(self, options, loaded.places)
                    changes = await run_cooperatively(steps)
                else:
                    changes = self._own_thread.call(partial(reload, self, options, loaded.places))
                self.config, self.config_load_time = loaded, datetime.now(UTC)
        logger.info("Reloaded server configuration (%s)", loaded.digest)
        return changes

    def renew_info(self) -> None:
        """Render the INFO line as the options say; if it is another one, send it.

        It is sent to the clients that support that.
        """
        before, self._info = self._info, self._info_line()
        if self._info.shared == before.shared:
            return
        for client in self.clients.values():
            client.announce_info()

    def _info_line(self) -> InfoLine:
        login = self.authenticator
        is_required = login.is_required and login.needs_credentials
        return InfoLine(
            self.options,
            self.id,
            self.name,
            self.client_port,
            auth_required=is_required,
            xkey=self.accounts_part.xkey,
            topology=None if self.cluster_part is None else self.cluster_part.topology(),
        )

    def renew_jetstream(self) -> None:
        """Switch JetStream on or off, or raise its limits, as the options say."""
        self._jetstream.renew(self.options, self.reactor, self.accounts)

    def enter_lame_duck(self) -> None:
        """Accept no more clients, close the existing ones slowly, then stop (see lame_duck.py).

        Does nothing unless the server is ready. Must be called on the server's own loop.
        """
        if self.is_ready:
            logger.info("Entering lame duck mode, stop accepting new clients")
            self._events.lame_duck_began()
            self._stop_listening()
            self._lame_duck = asyncio.create_task(self._move_clients(), name="natsd-lame-duck")

    @property
    def is_lame_duck(self) -> bool:
        """Whether the server is in lame duck mode."""
        return self._lame_duck is not None

    async def _move_clients(self) -> None:
        from natsd.server.lame_duck import move_clients

        await move_clients(
            self.options, self.clients, self._jetstream.stop, self._tell_servers_of_lame_duck
        )
        await self.stop_here()

    def _tell_servers_of_lame_duck(self) -> None:
        if self.cluster_part is not None:
            self.cluster_part.enter_lame_duck()

    def _stop_listening(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None

    async def _finish_stopping(self) -> None:
        """Stop all parts. A task runs this, so that messages queued before the stop are sent."""
        await self._services.close()
        await self._jetstream.stop()
        if self.operator is not None:
            await self.operator.close()
        if self.cluster_part is not None:
            await self.cluster_part.close()
        self._close_connections()
        await self.logins.close()
        if self._transports is not None:
            await self._transports.close()
        await self.files.close()
        log_stopped()
        self._stopping = self._lame_duck = None
        assert self._stopped is not None
        self._stopped.set()

    def _close_connections(self) -> None:
        for client in list(self.clients.values()):
            client.close(ClosedReason.SERVER_SHUTDOWN)
        self.accounts.close()
        self.reactor.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    def __enter__(self) -> Self:
        if self._own_thread is None:
            raise TypeError("use `async with`, or Server(thread=True) in a synchronous program")
        self._own_thread.start_and_wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._own_thread is not None
        self._own_thread.stop_and_wait()

    # ---- for clients, monitoring and embedding programs

    @property
    def client_url(self) -> str:
        """URL for a client on this machine."""
        host = "127.0.0.1" if self.client_host in _ANY_ADDRESS else self.client_host
        return (
            f"nats://[{host}]:{self.client_port}"
            if ":" in host
            else f"nats://{host}:{self.client_port}"
        )

    @property
    def http_port(self) -> int:
        """Port of the monitoring endpoints; 0: they are off."""
        return self.files.http_port

    @property
    def is_ready(self) -> bool:
        """Whether the start is over and connections are accepted."""
        return self._started is not None and self._started.is_set() and self._acceptor is not None

    @property
    def is_starting(self) -> bool:
        """Whether the start is not over yet."""
        return self._started is not None and not self._started.is_set()

    @property
    def jetstream(self) -> "JetStream | None":
        """The JetStream engine; None: JetStream is disabled or not running."""
        return self._jetstream.engine

    @property
    def cluster(self) -> "Cluster | None":
        """The routes to the other servers; None: the server is in no cluster, or not running."""
        return None if self.cluster_part is None else self.cluster_part.cluster

    @property
    def cluster_name(self) -> str:
        """Name of the server's cluster; empty: it is in none, or its name is not known yet."""
        return "" if self.cluster_part is None else self.cluster_part.name

    @property
    def cluster_certificate_end(self) -> datetime | None:
        """When the certificate for routes ends; None: they have no TLS."""
        return None if self.cluster_part is None else self.cluster_part.certificate_end

    @property
    def connect_urls(self) -> tuple[str, ...]:
        """The addresses that clients are told, of all servers; empty: none are told."""
        return () if self.cluster_part is None else self.cluster_part.told.connect_urls

    @property
    def known_servers(self) -> int:
        """How many other servers have told of themselves in the system account."""
        return self._events.known_servers

    def servers_connected_to(self, account: str) -> int:
        """Return how many other servers have connections in an account."""
        return self._events.servers_connected_to(account)

    @property
    def transports(self) -> "Transports | None":
        """What serves connections where there is no poller; None: the poller does."""
        return self._transports

    @property
    def authenticator(self) -> Authenticator:
        """What decides over each CONNECT."""
        return self.accounts_part.authenticator

    @property
    def links(self) -> "AccountLinks | None":
        """What accounts share; None: nothing."""
        return self.accounts_part.links

    @property
    def operator(self) -> "OperatorMode | None":
        """The accounts that JWTs describe; None: the settings have no operators."""
        return self.accounts_part.operator

    @property
    def config_digest(self) -> str:
        """Digest of the configuration file that is in force; empty: there is none."""
        return "" if self.config is None else self.config.digest

    @property
    def counters(self) -> TrafficStats:
        """Totals over all connections since the start."""
        return self.reactor.counters

    @property
    def system_account(self) -> Account:
        """The account in which the server itself is observed."""
        return self.accounts.system

    def info(
        self,
        cid: int,
        ip: str,
        account: Account | None = None,
        *,
        nonce: bytes = b"",
        max_payload: int = 0,
    ) -> bytes:
        """Return the INFO line for a client; with `account`, the later line that names it."""
        if account is None:
            return self._info.render(cid, ip, nonce=nonce, max_payload=max_payload)
        return self._info.render_connected(
            cid, ip, account.name, account.is_system, max_payload=max_payload
        )

    def lame_duck_info(self, cid: int, ip: str) -> bytes:
        """Return the INFO line that tells a client to connect to another server."""
        return self._info.render_lame_duck(cid, ip)

    def client_connected(self, client: Client, left: Account | None) -> None:
        """Announce a client that was accepted; `left` is the account that it was in before."""
        self._events.client_connected(client, left)

    def client_refused(self, client: Client, told: str) -> None:
        """Announce a client whose login was refused; `told` is the account that is told, too."""
        self._events.client_refused(client, self.accounts.get(told) or client.account)

    def client_closed(self, client: Client) -> None:
        """Announce a client that is being torn down, and remember it for monitoring."""
        from natsd.clients.closed import ClosedClient

        self._events.client_closed(client)
        self.closed_clients.append(ClosedClient.of(client))

    def now_ns(self) -> int:
        """Return the wall clock in Unix nanoseconds."""
        return time.time_ns()

    def take_stranger(self, name: str) -> Account | None:
        """Return an account of which other servers told, and that is created now; None: none."""
        return None if self.cluster_part is None else self.cluster_part.take_stranger(name)

    def send_statsz(self) -> None:
        """Publish the load of the server, if somebody in the system account listens."""
        self._events.send_statsz()

    def describe(self) -> dict[str, Any]:
        """Return the server's members in a message that it publishes about itself.

        They include a sequence number, which each call increments, and the current time.
        """
        from natsd.server.description import describe

        self._last_event += 1
        return describe(
            self.options,
            self.id,
            self.name,
            self._last_event,
            self.now_ns(),
            cluster=self.cluster_name,
            has_jetstream=self.jetstream is not None,
        )

    # ---- connections

    def next_cid(self) -> int:
        """Return the number of a new connection, of a client or a route."""
        self._last_cid += 1
        return self._last_cid

    def _accepted(self, descriptor: int, ip: str, port: int) -> None:
        """Serve an accepted connection. Raises OSError if the system cannot watch its socket."""
        self._last_cid += 1
        self.total_connections += 1
        if self._transports is None:
            client = Client(self, self._last_cid, descriptor, ip, port)
            try:
                client.welcome()
            except OSError:  # epoll cannot watch another socket
                client.close(ClosedReason.READ_ERROR)
                raise
        else:
            self._transports.add(
                socket.socket(fileno=descriptor), partial(self._connected, self._last_cid, ip, port)
            )

    def _refused(self, descriptor: int, ip: str, port: int) -> None:
        """Send INFO and -ERR to a connection that is refused for lack of descriptors."""
        self._last_cid += 1
        reason = f"-ERR '{ErrorText.MAXIMUM_CONNECTIONS}'\r\n"
        refuse(descriptor, self.info(self._last_cid, ip) + reason.encode())

    def _connected(self, cid: int, ip: str, port: int, link: "TransportLink") -> Client:
        client = Client(self, cid, -1, ip, port, link)
        client.welcome()
        return client
