"""The daemon: a server process that runs until a signal ends it.

- SIGINT and SIGTERM stop it in order, with exit code 0; a second signal ends it at once.
- SIGUSR1 reopens the log file. SIGHUP applies the configuration file again.
- SIGUSR2 starts lame duck mode: the server moves its clients to other servers, then ends. SIGTERM
  does not shorten that, SIGINT does. A server that is still starting has no clients, and ends.
- SIGQUIT writes the stack of every thread to standard error and ends the process at once, with exit
  code 2.
- An error at the start is one FTL line and exit code 1; if the log goes to a file, the line is also
  written to standard error.
- JetStream without a configured directory uses one below the system's directory for temporary
  files, like nats-server.
- The daemon raises its soft limit of open files to the hard limit, and warns once if that does not
  suffice for `max_connections`.
- A thread that computes, such as one that checks a JWT of 600 KB, lets the event loop go on after
  `THREAD_TURN_S`, ten times sooner than Python's default.
- It runs on uvloop if that is installed, else on asyncio's own loop.
- If systemd started it, systemd is told what it does (systemd.py).
"""

import asyncio
import faulthandler
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

from natsd.clients.listener import ListenError
from natsd.config import Options, OptionsError
from natsd.config.resources import (
    connections_possible,
    open_files_for,
    raise_open_files_limit,
    with_store_dir,
)
from natsd.server import Server
from natsd.server.files import FileError
from natsd.server.jetstream import JetStreamError
from natsd.server.log import DaemonLog, LogError
from natsd.server.threaded import loop_factory

if TYPE_CHECKING:
    from natsd.cli.systemd import ServiceManager
    from natsd.config.loaded import LoadedConfig

_logger = logging.getLogger("natsd.server")

EXIT_QUIT: Final = 2

SIGNAL_NAMES: Final = {
    signal.SIGINT: "interrupt",
    signal.SIGTERM: "terminated",
    signal.SIGUSR1: "user defined signal 1",
    signal.SIGUSR2: "user defined signal 2",
    signal.SIGHUP: "hangup",
}

READY: Final = "Ready"
"""What systemd shows of a server that serves clients."""
THREAD_TURN_S: Final = 0.0005
# A daemon's objects (connections, subscriptions) live long. Python's default, a collection after
# 700 allocations, would visit them again and again while thousands of clients connect.
GC_THRESHOLDS: Final = (50_000, 20, 50)


def run(
    options: Options,
    config: "LoadedConfig | None" = None,
    started: Callable[[Server], None] = lambda _server: None,
) -> int:
    """Run a server until a signal ends it; return the exit code.

    `config` is the file that the options come from, if there is one. `started` is called on the
    server's loop when clients can connect.
    """
    try:
        log = DaemonLog(options)
    except LogError as error:
        print(f"natsd: {error}", file=sys.stderr)
        return 1
    raise_open_files_limit()
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_serve(options, log, config, started))
    finally:
        log.close()


async def _serve(
    options: Options,
    log: DaemonLog,
    config: "LoadedConfig | None",
    started: Callable[[Server], None],
) -> int:
    server = Server(with_store_dir(options))
    server.log = log
    server.config = config
    with _service_manager() as manager:
        try:
            return await _serve_until_stopped(server, log, manager, started)
        except (FileError, JetStreamError, ListenError, OptionsError) as error:
            if manager is not None:
                manager.failed(str(error))
            return _fail(str(error), options)


async def _serve_until_stopped(
    server: Server,
    log: DaemonLog,
    manager: "ServiceManager | None",
    started: Callable[[Server], None],
) -> int:
    """Run the server until a signal or its lame duck mode ends it; return the exit code."""
    stop = asyncio.Event()
    _handle_signals(stop, log, server, manager)
    with _nothing_collected():
        if not await _started_before(stop, server):
            return 0
    _check_open_files(server.options.max_connections)
    if manager is not None:
        manager.ready(READY)
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(THREAD_TURN_S)
    started(server)
    waiting = [asyncio.create_task(each) for each in (stop.wait(), server.wait_closed())]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    if manager is not None:
        manager.stopping("Stopping")
    await server.stop()
    return 0


def _check_open_files(max_connections: int) -> None:
    """Warn if fewer clients can connect than configured, and say what to do about it."""
    possible = connections_possible()
    if possible < max_connections:
        _logger.warning(
            "Open files are limited: %d clients can connect, not max_connections (%d); raise the "
            "limit to %d (ulimit -n, LimitNOFILE=) or lower max_connections",
            possible,
            max_connections,
            open_files_for(max_connections),
        )


@contextmanager
def _service_manager() -> Iterator["ServiceManager | None"]:
    """Yield the connection to systemd, which hears that the server starts; None: no systemd."""
    manager = None
    if "NOTIFY_SOCKET" in os.environ:
        from natsd.cli.systemd import ServiceManager

        manager = ServiceManager.of(os.environ)
    if manager is None:
        yield None
        return
    manager.starting()
    try:
        yield manager
    finally:
        manager.close()


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Disable garbage collection during the start, and exempt the objects of the start from it.

    These objects live until the end. A collection among them took 0.3 s of the loop with 3,000
    consumers, more with more consumers, and freed nothing.
    """
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


async def _started_before(stop: asyncio.Event, server: Server) -> bool:
    """Start the server; False: a signal came first, and the start was undone."""
    starting = asyncio.create_task(server.start())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait({starting})
    if starting.cancelled():
        return False
    starting.result()
    return True


def _fail(reason: str, options: Options) -> int:
    _logger.critical("%s", reason)
    if options.log_file:
        print(f"natsd: {reason}", file=sys.stderr)
    return 1


def _handle_signals(
    stop: asyncio.Event, log: DaemonLog, server: Server, manager: "ServiceManager | None"
) -> None:
    loop = asyncio.get_running_loop()
    signal.signal(signal.SIGQUIT, _quit)
    faulthandler.register(signal.SIGQUIT, chain=True)

    reloads: set[asyncio.Task[None]] = set()

    def reload() -> None:
        task = loop.create_task(_reload(server, manager), name="natsd-reload")
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    def terminate() -> None:
        if not server.is_lame_duck:  # a lame duck is ending already, at its configured pace
            end()

    def move_clients() -> None:
        if server.is_starting:
            end()
            return
        if manager is not None and server.is_ready:
            manager.stopping("Lame duck mode: clients move to other servers")
        server.enter_lame_duck()

    def end() -> None:
        stop.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)  # the next signal ends the process at once

    actions: dict[signal.Signals, Callable[[], None]] = {
        signal.SIGINT: end,
        signal.SIGTERM: terminate,
        signal.SIGUSR1: log.reopen,
        signal.SIGUSR2: move_clients,
        signal.SIGHUP: reload,
    }
    for number, action in actions.items():
        loop.add_signal_handler(number, _trap, number, action)


async def _reload(server: Server, manager: "ServiceManager | None") -> None:
    """Apply the configuration file, or log why nothing has changed."""
    if manager is not None:
        manager.reloading()
    status = READY
    try:
        await server.reload_file()
    except Exception as error:
        reason = _log_refusal(error)
        status = f"{READY}; the last reload failed: {reason}"
    if manager is not None:
        manager.ready(status)


def _log_refusal(error: Exception) -> str:
    """Log why a reload failed, and return that."""
    from natsd.config.load import error_lines
    from natsd.server.reload import ReloadError

    reason = "; ".join(error_lines(error)) if isinstance(error, OptionsError) else str(error)
    is_expected = isinstance(error, OptionsError | ReloadError)
    text = "Failed to reload server configuration: %s"
    _logger.error(text, reason, exc_info=None if is_expected else error)
    return reason


def _quit(_number: int, _frame: FrameType | None) -> NoReturn:
    """End at once, as a Go program does, after faulthandler wrote the threads' stacks."""
    os._exit(EXIT_QUIT)


def _trap(number: signal.Signals, action: Callable[[], None]) -> None:
    """Log a signal and run its action."""
    _logger.info('Trapped "%s" signal', SIGNAL_NAMES[number])
    action()
