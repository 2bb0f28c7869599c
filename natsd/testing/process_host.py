"""A server in a process of its own, which can be killed, stopped and paused like any process.

The process comes from the fork server of this process (fork_server.py), which is started with the
first one and ends with this process.
"""

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from natsd.testing.errors import ProcessError
from natsd.testing.fork_server import Start
from natsd.testing.launch import Addresses, Launch
from natsd.testing.requests import Request
from natsd.testing.server_log import FileLog

if TYPE_CHECKING:
    from natsd.config import Options

TIMEOUT_S: Final = 60.0
"""Time that a process may take to start, to answer or to stop; a busy machine is slow."""
POLL_S: Final = 0.001
_PROGRAM: Final = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from natsd.testing.fork_server import main
main(int(sys.argv[1]))
"""


class ProcessHost:
    """Runs a server in a process; it may be started again after a stop or a kill."""

    def __init__(self, log: Path) -> None:
        self.log = FileLog(log)
        self._log_path = log
        self._asking = threading.Lock()
        self._pid = 0
        self._pipe: Pipe | None = None
        self._is_paused = False

    def start(self, launch: Launch) -> Addresses:
        """Start; return where the server is.

        Raises OptionsError for invalid settings, and ProcessError if the server does not start.
        """
        options, _ = launch.read()
        logged = len(self.log.text)
        self._pipe = _fork_server.fork(_kind_of(options))
        try:
            self._pid = self._receive()
            self._pipe.send(Start(launch, self._log_path, Path.cwd(), dict(os.environ)))
            addresses: Addresses = self._receive()
        except BaseException as error:
            if self._pid:
                self.kill()
            else:
                self._forget()
            if isinstance(error, EOFError | OSError):
                text = self.log.text[logged:].strip()
                raise ProcessError(f"the server did not start:\n{text}") from None
            raise
        return addresses

    @property
    def pid(self) -> int:
        """Pid of the server's process. Raises RuntimeError if it is stopped."""
        if self._pipe is None:
            raise RuntimeError("the server is not running")
        return self._pid

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._pipe is not None and not self._has_ended(0)

    def stop(self) -> None:
        """Stop in order by SIGTERM, and wait for the end; kill a process that does not end."""
        if self._pipe is None:
            return
        self.resume()
        self._signal(signal.SIGTERM)
        if not self._has_ended(TIMEOUT_S):
            self.kill()
            raise ProcessError(f"the server did not stop within {TIMEOUT_S:g} s; it was killed")
        self._release()

    def kill(self) -> None:
        """End the process at once by SIGKILL, and wait for the end."""
        self._is_paused = False
        if self._pipe is not None:
            self._signal(signal.SIGKILL)
            self._has_ended(TIMEOUT_S)
            self._release()

    def pause(self) -> None:
        """Stop the process by SIGSTOP: sockets stay open, and nothing is answered."""
        self._is_paused = True
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        if self._is_paused:
            self._is_paused = False
            self._signal(signal.SIGCONT)

    def ask(self, request: Request) -> Any:
        """Return the answer of the server's process, or raise its exception."""
        if self._pipe is None:
            raise RuntimeError("the server is not running")
        if self._is_paused:
            raise RuntimeError("the server is paused")
        try:
            with self._asking:
                self._pipe.send(request)
                answer = self._receive()
        except (EOFError, OSError):
            raise ProcessError("the server's process has ended by itself") from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _receive(self) -> Any:
        """Return the next message. Raises EOFError or OSError if the process has ended."""
        assert self._pipe is not None
        if not self._pipe.poll(TIMEOUT_S):
            raise ProcessError(f"the server's process did not answer within {TIMEOUT_S:g} s")
        return self._pipe.recv()

    def _has_ended(self, timeout_s: float) -> bool:
        """Return whether the process has ended, or does so within the time: its socket closes."""
        assert self._pipe is not None
        with self._asking:
            try:
                if self._pipe.poll(timeout_s):
                    self._pipe.recv()
            except (EOFError, OSError):
                return True
        return False

    def _signal(self, number: signal.Signals) -> None:
        if not self._has_ended(0):  # else the pid may be that of another process
            os.kill(self.pid, number)

    def _release(self) -> None:
        """Wait until the system has closed the ports and files of the ended process."""
        give_up_at = time.monotonic() + TIMEOUT_S
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < give_up_at:
                os.kill(self._pid, 0)
                time.sleep(POLL_S)
        self._forget()

    def _forget(self) -> None:
        assert self._pipe is not None
        self._pipe.close()
        self._pipe = None
        self._pid = 0


def _kind_of(options: "Options") -> bytes:
    """Return which modules the server needs, as a key of `MODULES`."""
    if options.jetstream.enabled:
        return b"j"
    return b"r" if options.has_cluster else b"c"


class _ForkServer:
    """The fork server of this process; it is started on first use."""

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None
        self._pid = 0

    def fork(self, kind: bytes) -> Pipe:
        """Fork a process for a server of a kind, a key of `MODULES`; return the pipe to it."""
        ours, theirs = socket.socketpair()
        with self._asking, theirs:
            if (
                self._process is None
                or self._process.poll() is not None
                or self._pid != os.getpid()
            ):
                self._start()
            assert self._requests is not None
            socket.send_fds(self._requests, [kind], [theirs.fileno()])
        return Pipe(ours.detach())

    def _start(self) -> None:
        """Start the fork server; it ends when our side of its socket closes."""
        self._requests, theirs = socket.socketpair()
        self._pid = os.getpid()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), json.dumps(sys.path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        atexit.register(self._end, self._process, self._requests)

    @staticmethod
    def _end(process: subprocess.Popen[bytes], requests: socket.socket) -> None:
        requests.close()
        process.wait()


_fork_server: Final = _ForkServer()
