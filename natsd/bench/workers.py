"""Load processes, and the parent's handle on each.

A role travels to its process as a pickle on stdin; then they talk line by line:

    parent                     process
    <role, pickled>     →
                        ←      ready        after role.prepare(); or fault and the reason
    go                  →
                        ←      <result>     after role.run(): 8 bytes of length, then a pickle
    close (or EOF)      →                   role.close(), exit

Every answer has a deadline; a process that misses it is killed, and the run is void.
"""

import os
import pickle
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import BinaryIO, Self

from natsd.bench.result import Role, RoleResult
from natsd.bench.wire import LoadError

PREPARE_SECONDS_MAX = 60.0
RUN_SECONDS_MAX = 120.0
EXIT_SECONDS_MAX = 10.0
READY = b"ready\n"
FAULT = b"fault\n"
GO = b"go\n"
FAULT_BYTES_MAX = 300
assert len(READY) == len(FAULT)


class Worker:
    """One load process."""

    def __init__(self, role: Role) -> None:
        self.name = type(role).__name__.lower()
        self._role = role
        self._process = subprocess.Popen(
            [sys.executable, "-m", "natsd.bench.workers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def send_role(self) -> None:
        """Send the role to the process."""
        self._write(pickle.dumps(self._role))

    def await_ready(self) -> None:
        """Wait until the role is prepared; raises LoadError if it cannot be prepared."""
        if self._read(len(READY), PREPARE_SECONDS_MAX) != READY:
            assert self._process.stdout is not None
            raise LoadError(f"{self.name}: {self._process.stdout.read(FAULT_BYTES_MAX).decode()}")

    def go(self) -> None:
        """Start the measured work."""
        self._write(GO)

    def result(self) -> RoleResult:
        """Wait for the result of the role and return it; raises LoadError after RUN_SECONDS_MAX."""
        size = int.from_bytes(self._read(8, RUN_SECONDS_MAX), "big")
        result = pickle.loads(self._read(size, RUN_SECONDS_MAX))
        assert isinstance(result, RoleResult)
        return result

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            with memoryview(data) as view:
                done = 0
                while done < len(data):
                    done += self._process.stdin.write(view[done:]) or 0
        except BrokenPipeError as error:
            raise LoadError(f"the {self.name} process is gone") from error

    def _read(self, size: int, seconds_max: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + seconds_max
        data = bytearray()
        while len(data) < size:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise LoadError(f"the {self.name} process did not answer in {seconds_max:.0f} s")
            piece = os.read(descriptor, size - len(data))
            if not piece:
                raise LoadError(f"the {self.name} process failed")
            data += piece
        return bytes(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        if kind is not None:
            process.kill()
        process.stdin.close()
        try:
            process.wait(EXIT_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


class Crew:
    """The load processes of one run, prepared in the given order and started together."""

    def __init__(self, roles: Sequence[Role]) -> None:
        self._stack = ExitStack()
        self.workers: list[Worker] = []
        with ExitStack() as stack:
            self.workers = [stack.enter_context(Worker(role)) for role in roles]
            for worker in self.workers:
                worker.send_role()
            for worker in self.workers:
                worker.await_ready()
            self._stack = stack.pop_all()

    def run(self) -> list[RoleResult]:
        """Let all roles work; return their results, in the order of the roles."""
        for worker in self.workers:
            worker.go()
        return [worker.result() for worker in self.workers]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, traceback)


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Run the load process's side of the protocol on `source` and `sink`."""
    role: Role = pickle.load(source)
    try:
        role.prepare()
    except (OSError, LoadError) as error:
        sink.write(FAULT + str(error).encode()[:FAULT_BYTES_MAX])
        sink.flush()
        return
    sink.write(READY)
    sink.flush()
    if source.readline() != GO:
        role.close()
        return
    before_seconds = time.process_time()
    result = role.run()
    result.cpu_seconds = time.process_time() - before_seconds
    data = pickle.dumps(result)
    sink.write(len(data).to_bytes(8, "big") + data)
    sink.flush()
    source.readline()
    role.close()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and stops us
    serve(sys.stdin.buffer, sys.stdout.buffer)
