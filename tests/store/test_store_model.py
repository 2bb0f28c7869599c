"""Each kind of store against the plain model: any operations, in any order, with any limits."""

import asyncio
import tempfile
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from natsd.store.errors import MessageNotFound, StoreEOF, StoreError
from natsd.store.log_store import LogStore
from natsd.store.store import Discard, Limits
from tests.store.audience import Audience
from tests.store.crash import TORTURE
from tests.store.plain_store import Plain, PlainStore
from tests.store.store_kinds import STORE_KINDS

pytestmark = pytest.mark.torture

SUBJECTS = ["a", "b", "a.x", "a.y", "a.x.1", "a.y.1", "b.x", "b.x.1", "c.x"]
PATTERNS = [">", "a", "*", "a.*", "a.>", "*.x", "*.*.1", "b.x", "none", "none.*", "c.>"]
SEVERAL = [["a.x", "b.>"], ["*", "a.*"], ["a.>", "*.x.>"], ["c.x"], ["a.*", "*.x", "b"]]

small = st.integers(-1, 12)
limits = st.builds(
    Limits,
    max_msgs=small,
    max_bytes=st.sampled_from([-1, -1, 130, 400, 900]),
    max_age_ns=st.sampled_from([0, 0, 5, 20]),
    max_msgs_per_subject=st.integers(-1, 3),
    max_msg_size=st.sampled_from([-1, 20]),
    discard=st.sampled_from(Discard),
)
patterns = st.sampled_from(PATTERNS)
filters = st.one_of(patterns, st.sampled_from(SEVERAL))


def plain(message: Any) -> Plain:
    return Plain(
        message.sequence,
        message.subject,
        message.headers,
        message.data,
        message.time_ns,
        message.expires_ns,
    )


class StoreModel(RuleBasedStateMachine):
    """The model test of a store; a subclass names the kind of store."""

    kind: str

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.now = 1

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.run(self.store.close())
        self.runner.close()
        self.directory.cleanup()

    def run(self, awaited: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(awaited)

    @initialize(limits=limits, first=st.sampled_from([0, 0, 7]), per_subject=st.booleans())
    def open(self, limits: Limits, first: int, per_subject: bool) -> None:
        is_new = limits.discard is Discard.NEW and limits.max_msgs_per_subject > 0
        chosen = replace(
            limits, first_sequence=first, discard_new_per_subject=per_subject and is_new
        )
        self.store: LogStore = self.run(STORE_KINDS[self.kind](Path(self.directory.name), chosen))
        self.model = PlainStore(chosen)
        self.audience = Audience(self.store.log)

    # ---- writing

    @rule(
        subject=st.sampled_from(SUBJECTS),
        headers=st.sampled_from([None, None, b"NATS/1.0\r\nA: b\r\n\r\n"]),
        data=st.binary(max_size=30),
        gap=st.sampled_from([None] * 6 + [-1, 0, 1, 3, 70_000]),
        expires=st.sampled_from([0, 0, 0, -1, 3, 30]),
        times=st.integers(1, 4),
    )
    def append(
        self,
        subject: str,
        headers: bytes | None,
        data: bytes,
        gap: int | None,
        expires: int,
        times: int,
    ) -> None:
        for _ in range(times):
            self.now += 1
            sequence = 0 if gap is None else max(self.model.last + 1 + gap, 1)
            expires_ns = self.now + expires if expires > 0 else expires
            arguments = (subject, headers, data, self.now)
            try:
                expected: object = self.model.append(*arguments, sequence, expires_ns)
            except StoreError as error:
                expected = type(error)
            try:
                got: object = self.store.append(
                    *arguments, sequence=sequence, expires_ns=expires_ns
                )
            except StoreError as error:
                got = type(error)
            assert got == expected

    @rule(count=st.sampled_from([1, 1, 2, 5, 70_000]))
    def skip(self, count: int) -> None:
        assert self.store.skip(count) == self.model.skip(count)

    @rule(back=st.integers(-1, 12), erase=st.booleans())
    def delete(self, back: int, erase: bool) -> None:
        sequence = max(self.model.last - back, 0)
        removing = self.store.erase if erase else self.store.delete
        assert self.run(removing(sequence)) == self.model.delete(sequence)

    @rule(pattern=patterns, up_to=st.integers(0, 14), keep=st.integers(0, 4), near=st.booleans())
    def purge(self, pattern: str, up_to: int, keep: int, near: bool) -> None:
        if near and up_to:
            up_to = max(self.model.last - up_to, 1)
        removed = self.run(self.store.purge(pattern=pattern, up_to_sequence=up_to, keep=keep))
        assert removed == self.model.purge(pattern, up_to, keep)

    @rule(ahead=st.integers(-10, 3))
    def compact(self, ahead: int) -> None:
        sequence = max(self.model.last + ahead, 0)
        assert self.run(self.store.compact(sequence)) == self.model.compact(sequence)

    @rule(back=st.integers(-1, 6))
    def truncate(self, back: int) -> None:
        sequence = max(self.model.last - back, 0)
        self.run(self.store.truncate(sequence))
        self.model.truncate(sequence)

    @rule(later=st.integers(0, 12))
    def expire(self, later: int) -> None:
        self.now += later
        assert self.run(self.store.expire(self.now)) == self.model.expire(self.now)

    @rule(limits=limits)
    def change_limits(self, limits: Limits) -> None:
        self.store.update_limits(replace(limits, max_age_ns=0), self.now)
        self.run(self.store.settle())
        self.model.update_limits(replace(limits, max_age_ns=0))

    # ---- reading

    @rule(filters=filters, back=st.integers(-1, 14))
    def look_ahead(self, filters: Any, back: int) -> None:
        first = max(self.model.last - back, 0)
        found = [each for each in self.model.matching(filters) if each.sequence >= first]
        if not found:
            with pytest.raises(StoreEOF):
                self.run(self.store.load_next(filters, first))
            return
        message, skipped = self.run(self.store.load_next(filters, first))
        assert (plain(message), skipped) == (found[0], found[0].sequence - max(first, 1))

    @rule(pattern=patterns)
    def look_at_last(self, pattern: str) -> None:
        found = self.model.matching(pattern)
        if not found:
            with pytest.raises(MessageNotFound):
                self.run(self.store.load_last(pattern))
            return
        assert plain(self.run(self.store.load_last(pattern))) == found[-1]

    @rule(filters=filters, back=st.integers(-1, 14), last_only=st.booleans())
    def count_pending(self, filters: Any, back: int, last_only: bool) -> None:
        first = max(self.model.last - back, 0)
        expected = self.model.num_pending(first, filters, last_only), self.model.last
        assert self.run(self.store.num_pending(first, filters, last_only)) == expected

    @rule(filters=filters, back=st.integers(-1, 14))
    def look_at_lasts(self, filters: Any, back: int) -> None:
        wanted = [filters] if isinstance(filters, str) else filters
        up_to = max(self.model.last - back, 0)
        expected = self.model.multi_last(wanted, up_to)
        assert self.run(self.store.multi_last(wanted, up_to)) == expected

    @rule(pattern=patterns)
    def list_subjects(self, pattern: str) -> None:
        found = self.model.by_subject(pattern)
        totals = {subject: len(each) for subject, each in found.items()}
        assert self.run(self.store.subject_totals(pattern)) == totals

    @invariant()
    def state_is_exact(self) -> None:
        if not hasattr(self, "store"):
            return
        state, model = self.store.state(with_deleted=True), self.model
        first = model.messages.get(model.first)
        assert state.msgs == len(model.messages)
        assert state.bytes == model.live_bytes
        assert state.last_sequence == model.last
        assert state.first_sequence == (model.first if model.last else 0)
        assert state.first_time_ns == (first.time_ns if first else 0)
        assert state.num_subjects == len(model.by_subject(">"))
        assert state.deleted is not None
        assert state.num_deleted == len(state.deleted) == len(model.deleted)
        assert set(state.deleted) == set(model.deleted)

    @invariant()
    def every_removal_was_told(self) -> None:
        if hasattr(self, "store"):
            self.audience.check()

    @invariant()
    def messages_are_there(self) -> None:
        if not hasattr(self, "store"):
            return
        assert [plain(message) for message in everything(self.store)] == self.model.matching(">")

    @invariant()
    def nothing_expires_before_its_time_is_told(self) -> None:
        if not hasattr(self, "store"):
            return
        due = self.model.next_expiry_ns()
        told = self.store.next_expiry_ns()
        assert due is None or (told is not None and told <= due)


def everything(store: LogStore) -> list[Any]:
    try:
        messages = store.read_batch_cached(0, 1 << 20, 1 << 30)
    except StoreEOF:
        return []
    assert messages is not None
    return messages


class MemoryModel(StoreModel):
    kind = "memory"


TestMemory = MemoryModel.TestCase
TestMemory.settings = settings(max_examples=80 * TORTURE, stateful_step_count=30, deadline=None)
