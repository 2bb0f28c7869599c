"""A load process that receives frames and counts them exactly, at little cost.

- The first bytes are kept and compared with the expected frames.
- The other bytes are only counted. Where TCP can discard received bytes without copying them
  (Linux, MSG_TRUNC), the subscriber lets it, so that the benchmark does not measure the counting.
- At the end a PING is sent; the stream must then end on a frame boundary, followed by the PONG. So
  a byte that was lost, doubled or added anywhere in the run is noticed.
"""

import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from natsd.bench import wire
from natsd.bench.access import OPEN, Access
from natsd.bench.frames import PING, PONG, FrameShape
from natsd.bench.progress import RELEASED, Progress, Window
from natsd.bench.result import RoleResult

SAMPLE_BYTES = 1 << 16
BUFFER_BYTES = 1 << 20
POLL_SECONDS = 0.05
STALL_SECONDS_MAX = 5.0
DISCARD = socket.MSG_TRUNC if sys.platform == "linux" else 0


@dataclass
class Subscriber:
    """A subscriber that receives until `expected` messages are there.

    In a queue group (`window.shared`) the messages of all its members are added.
    """

    host: str
    port: int
    progress_path: Path
    slot: int
    window: Window
    subscriptions: bytes
    shape: FrameShape
    expected: int
    access: Access = OPEN
    _sock: socket.socket = field(init=False, repr=False)
    _progress: Progress = field(init=False, repr=False)
    _stream_bytes: int = field(init=False, default=0)
    _ended_ns: int = field(init=False, default=0)
    _sample: bytes = field(init=False, default=b"")

    def prepare(self) -> None:
        """Connect and subscribe."""
        self._progress = Progress.attach(self.progress_path)
        self._sock = wire.connect(self.host, self.port, self.subscriptions, self.access)
        wire.set_receive_timeout(self._sock, POLL_SECONDS)

    def run(self) -> RoleResult:
        """Receive the messages, then verify their count."""
        started_ns = self._ended_ns = time.perf_counter_ns()
        problem = ""
        received = 0
        try:
            self._receive()
            received = self._proven_count()
        except (OSError, wire.LoadError) as error:
            received, _ = self.shape.whole_frames(self._stream_bytes)
            self._progress.counters[self.slot] = RELEASED
            problem = f"subscriber: {error}"
        return RoleResult(started_ns, self._ended_ns, received=received, problem=problem)

    def _receive(self) -> None:
        buffer = memoryview(bytearray(BUFFER_BYTES))
        recv_into, clock = self._sock.recv_into, time.perf_counter_ns
        counters, slot, frame_bytes = (
            self._progress.counters,
            self.slot,
            self.shape.frame_bytes,
        )
        request_bytes, flags = SAMPLE_BYTES, 0
        while not self._complete():
            try:
                size = recv_into(buffer, request_bytes, flags)
            except BlockingIOError:
                if clock() - self._ended_ns > STALL_SECONDS_MAX * 1e9:
                    return
                continue
            if not size:
                raise wire.LoadError("the server closed the connection")
            self._ended_ns = clock()
            self._stream_bytes += size
            counters[slot] = self._stream_bytes // frame_bytes
            if not self._sample:
                self._sample = bytes(buffer[:size])
                request_bytes, flags = BUFFER_BYTES, DISCARD

    def _complete(self) -> bool:
        counters = self._progress.counters
        if self.window.shared:
            return self.window.delivered(counters) >= self.expected
        return counters[self.slot] >= self.expected

    def _proven_count(self) -> int:
        """Return the number of received messages; checks the stream's beginning and end.

        Raises LoadError if the frames are not the expected ones, or the stream ends inside a frame.
        """
        if not self.shape.agrees(self._sample):
            raise wire.LoadError(f"unexpected frames: {self._sample[:80]!r}")
        self._sock.sendall(PING)
        self._sock.settimeout(STALL_SECONDS_MAX)
        rest = wire.read_to_pong(self._sock)
        stream_bytes = self._stream_bytes + len(rest) - len(PONG)
        received, on_boundary = self.shape.whole_frames(stream_bytes)
        if not on_boundary:
            raise wire.LoadError(f"the stream ends inside a frame: {rest[-80:]!r}")
        return received

    def close(self) -> None:
        """Close the connection."""
        wire.close_with_reset(self._sock)
        self._progress.close()
