"""Random programs of publishes with preconditions against a list (`Nats-Expected-*`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.core.routing import matches
from natsd.store.store import Discard, Limits
from tests.jetstream.clock import SECOND_NS
from tests.jetstream.stream.publishing import Bench, file_bench, memory_bench

WINDOW_NS = 10 * SECOND_NS
MAX_MSGS = 12


@dataclass
class PlainStream:
    """A model of a stream with a limit of messages and discard new."""

    now_ns: int = 0
    last: int = 0
    last_id: str = ""
    messages: dict[int, str] = field(default_factory=dict)
    ids: dict[str, tuple[int, int]] = field(default_factory=dict)

    def publish(self, subject: str, headers: dict[str, str]) -> tuple[int, int]:
        """Return (error code or 0, sequence)."""
        code = self.refusal(subject, headers)
        if code:
            return code, 0
        wanted = headers.get("Nats_Msg_Id", "")
        sequence, time_ns = self.ids.get(wanted, (0, 0))
        if wanted and sequence and self.now_ns - time_ns < WINDOW_NS:
            return 0, sequence
        if headers.get("Nats_Expected_Last_Msg_Id", self.last_id) != self.last_id:
            return 10070, 0
        if headers.get("Nats_Rollup", "all") not in ("sub", "all"):
            return 10111, 0
        if len(self.messages) >= MAX_MSGS:
            return 10077, 0
        self.store(subject, wanted, headers.get("Nats_Rollup"))
        return 0, self.last

    def refusal(self, subject: str, headers: dict[str, str]) -> int:
        if headers.get("Nats_Expected_Stream", "S") != "S":
            return 10060
        if "Nats_Expected_Last_Subject_Sequence" in headers:
            pattern = headers.get("Nats_Expected_Last_Subject_Sequence_Subject", subject)
            found = [number for number, name in self.messages.items() if matches(name, pattern)]
            if int(headers["Nats_Expected_Last_Subject_Sequence"]) != max(found, default=0):
                return 10071
        elif "Nats_Expected_Last_Subject_Sequence_Subject" in headers:
            return 10193
        if headers.get("Nats_Expected_Last_Sequence", str(self.last)) != str(self.last):
            return 10071
        return 0

    def store(self, subject: str, message_id: str, rollup: str | None) -> None:
        self.last += 1
        self.last_id = message_id
        if message_id:
            self.ids[message_id] = self.last, self.now_ns
        if rollup == "all":
            self.messages.clear()
        if rollup == "sub":
            same = [number for number, name in self.messages.items() if name == subject]
            for number in same:
                del self.messages[number]
        self.messages[self.last] = subject


subjects = st.sampled_from(["s.a", "s.b", "s.c.d"])
sequences = st.integers(0, 20).map(str)
demands = st.fixed_dictionaries(
    {},
    optional={
        "Nats_Msg_Id": st.sampled_from(["one", "two", "three"]),
        "Nats_Expected_Stream": st.sampled_from(["S", "S", "T"]),
        "Nats_Expected_Last_Sequence": sequences,
        "Nats_Expected_Last_Msg_Id": st.sampled_from(["one", "two"]),
        "Nats_Expected_Last_Subject_Sequence": sequences,
        "Nats_Expected_Last_Subject_Sequence_Subject": subjects | st.just("s.*"),
        "Nats_Rollup": st.sampled_from(["sub", "all", "some"]),
    },
)


async def compare(bench: Bench, data: st.DataObject) -> None:
    plain = PlainStream(now_ns=bench.clock.now_ns)
    for _ in range(data.draw(st.integers(1, 30))):
        step = data.draw(st.sampled_from(["plain", "plain", "demands", "delete", "later"]))
        if step == "later":
            bench.clock.now_ns += 4 * SECOND_NS
            plain.now_ns = bench.clock.now_ns
        elif step == "delete":
            sequence = data.draw(st.integers(1, 30))
            assert await bench.store.delete(sequence) == (sequence in plain.messages)
            plain.messages.pop(sequence, None)
        else:
            headers = data.draw(demands) if step == "demands" else {}
            subject = data.draw(subjects)
            answer: dict[str, Any] = await bench.ask(subject, b"", **headers)
            got = answer.get("error", {}).get("err_code", 0), answer["seq"]
            assert got == plain.publish(subject, headers)
        assert bench.contents() == plain.messages
        assert bench.ingest.message_ids.last == plain.last_id


LIMITS = Limits(max_msgs=MAX_MSGS, discard=Discard.NEW)


@given(st.data())
@settings(max_examples=100, deadline=None)
async def test_a_stream_in_memory(data: st.DataObject) -> None:
    async with memory_bench(
        limits=LIMITS, duplicate_window_ns=WINDOW_NS, allows_rollup=True
    ) as bench:
        await compare(bench, data)


@given(st.data())
@settings(max_examples=15, deadline=None)
async def test_a_stream_in_files(data: st.DataObject) -> None:
    with TemporaryDirectory() as directory:
        async with file_bench(
            Path(directory), limits=LIMITS, duplicate_window_ns=WINDOW_NS, allows_rollup=True
        ) as bench:
            await compare(bench, data)
