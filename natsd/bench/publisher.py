"""A load process that publishes pre-encoded frames as fast as the window and TCP let it."""

import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

from natsd.bench import wire
from natsd.bench.access import OPEN, Access
from natsd.bench.frames import PING
from natsd.bench.progress import Progress, Window
from natsd.bench.result import RoleResult

CHUNK_BYTES = 1 << 18
WAIT_SECONDS = 0.0001
STALL_SECONDS_MAX = 5.0


@dataclass
class Publisher:
    """A publisher of `messages` frames.

    It sends the frames of `block` repeatedly, then a PING, and waits for the PONG.
    """

    host: str
    port: int
    progress_path: Path
    slot: int
    window: Window
    block: bytes
    frame_bytes: int
    messages: int
    access: Access = OPEN
    _sock: socket.socket = field(init=False, repr=False)
    _progress: Progress = field(init=False, repr=False)

    def prepare(self) -> None:
        """Connect to the server."""
        self._progress = Progress.attach(self.progress_path)
        self._sock = wire.connect(self.host, self.port, access=self.access)

    def run(self) -> RoleResult:
        """Publish everything; the run ends when the server has answered the PING behind it."""
        started_ns = time.perf_counter_ns()
        problem = ""
        try:
            self._publish()
            self._sock.sendall(PING)
            wire.read_to_pong(self._sock)
        except (OSError, wire.LoadError) as error:
            problem = f"publisher: {error}"
        return RoleResult(
            started_ns=started_ns,
            ended_ns=time.perf_counter_ns(),
            sent=self._progress.counters[self.slot],
            problem=problem,
        )

    def _publish(self) -> None:
        view, size = memoryview(self.block), self.frame_bytes
        block_frames = len(self.block) // size
        chunk_frames = max(1, CHUNK_BYTES // size)
        counters, slot = self._progress.counters, self.slot
        position = sent = 0
        while sent < self.messages:
            count = min(chunk_frames, block_frames - position, self.messages - sent)
            self._await_room(count)
            self._sock.sendall(view[position * size : (position + count) * size])
            sent += count
            counters[slot] = sent
            position = (position + count) % block_frames

    def _await_room(self, count: int) -> None:
        """Wait until the window has room for `count` messages.

        Blocks the process. Raises LoadError if the subscribers receive nothing for
        STALL_SECONDS_MAX.
        """
        counters, window = self._progress.counters, self.window
        if window.room(counters) >= count:
            return
        delivered, waited_since = -1, time.monotonic()
        while window.room(counters) < count:
            now = time.monotonic()
            if (current := window.delivered(counters)) != delivered:
                delivered, waited_since = current, now
            elif now - waited_since > STALL_SECONDS_MAX:
                raise wire.LoadError("subscribers stopped receiving")
            time.sleep(WAIT_SECONDS)

    def close(self) -> None:
        """Close the connection."""
        wire.close_with_reset(self._sock)
        self._progress.close()
