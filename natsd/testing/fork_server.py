"""The fork server: a process that has imported natsd, and forks servers from itself.

    test ──a byte of MODULES, and a socket──▶ fork server ──fork──▶ the server's process
      └───────────the socket: ◀ pid, Start ▶, ◀ Addresses, requests ▶, ◀ answers───────┘

- A server starts in milliseconds, since its process has all modules from the beginning. The fork
  server has one thread, and imports what JetStream needs with the first server that needs it.
- A server's process runs the daemon of the command line (natsd/cli/daemon.py): its log, signals and
  exit are those of `natsd`.
- When the test's process ends, in whatever way, the sockets close: the fork server ends, and so
  does every server, at once.
- The servers are in a session of their own: Ctrl-C in the terminal reaches only the test.
"""

import asyncio
import gc
import importlib
import os
import signal
import socket
import sys
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Final, NoReturn

from natsd.cli import daemon
from natsd.server import Server
from natsd.testing.launch import Launch, addresses_of
from natsd.testing.requests import Request

MODULES: Final = {
    b"c": ("uvloop",),
    b"j": ("uvloop", "natsd.jetstream.jetstream", "natsd.jetstream.early_requests"),
    b"r": ("uvloop", "natsd.cluster.service"),
}
"""The modules that a server needs, by the byte that asks for it: core, JetStream, or routes."""


@dataclass(frozen=True, slots=True)
class Start:
    """The first message to a server's process: how it starts."""

    launch: Launch
    log: Path
    directory: Path
    """The working directory."""
    environment: dict[str, str]


def main(descriptor: int) -> None:
    """Fork a server for each byte that arrives with a socket; return when the test has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps the servers
    requests = socket.socket(fileno=descriptor)
    while True:
        kind, descriptors, _, _ = socket.recv_fds(requests, 1, 1)
        if not kind:
            return
        for module in MODULES[kind]:
            importlib.import_module(module)
        gc.freeze()
        if os.fork() == 0:
            requests.close()
            _serve(Pipe(descriptors[0]))
        os.close(descriptors[0])


def _serve(pipe: Pipe) -> NoReturn:
    """Run a server in this process until it ends."""
    code = 1
    try:
        pipe.send(os.getpid())
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        start: Start = pipe.recv()
        log = os.open(start.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(log, sys.stdout.fileno())
        os.dup2(log, sys.stderr.fileno())
        os.close(log)
        os.environ.clear()
        os.environ.update(start.environment)
        os.chdir(start.directory)
        options, config = start.launch.read()
        code = daemon.run(options, config, lambda server: _started(server, pipe))
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


def _started(server: Server, pipe: Pipe) -> None:
    """Tell the test that clients can connect, and answer it from here on."""
    pipe.send(addresses_of(server))
    threading.Thread(
        target=_answer, args=(server, pipe, asyncio.get_running_loop()), daemon=True
    ).start()


def _answer(server: Server, pipe: Pipe, loop: asyncio.AbstractEventLoop) -> None:
    """Answer each request with its result or its exception, until the test has ended."""
    while True:
        try:
            request: Request = pipe.recv()
        except (EOFError, OSError):
            os._exit(1)
        answer: object
        try:
            answer = asyncio.run_coroutine_threadsafe(request(server), loop).result()
        except Exception as error:
            answer = error
        pipe.send(answer)
