"""LogCommits over blocks whose files are byte strings: commits and rollbacks.

After each commit, a log that is recovered from these bytes alone equals the committed log.
"""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from natsd.store.block.blocks import MsgBlock, Scan
from natsd.store.block.cold_block import ColdBlock
from natsd.store.errors import StoreEOF
from natsd.store.log.message_log import (
    BlockShare,
    Compact,
    Expire,
    Expiries,
    LogCommits,
    MessageLog,
    NextMatch,
    NumPending,
    Operation,
    Purge,
    SubjectTotals,
    Sweep,
    look_up_slots,
    note_gaps,
    read_batch,
    set_slots,
    settle_limits,
)
from natsd.store.log.subjects import Filter, SubjectIndex
from natsd.store.sequence_set import SequenceSet
from natsd.store.store import Limits
from tests.store.audience import Audience
from tests.store.crash import TORTURE
from tests.store.plain_store import PlainStore
from tests.store.test_store_model import plain

pytestmark = pytest.mark.torture

BLOCK_BYTES = 500
SUBJECTS = ["a", "a.x", "a.y", "b", "b.x.y", "c"]


class Files:
    """The blocks' files as bytes: a commit writes them, and fetching a block reads them."""

    def __init__(self) -> None:
        self.written: dict[int, bytearray] = {}
        self.blocks_made = 0

    def make_block(self, base_sequence: int) -> MsgBlock:
        self.blocks_made += 1
        return MsgBlock(self.blocks_made, 77 + self.blocks_made, base_sequence, BLOCK_BYTES)

    def write(self, extents: list[tuple[int, int, bytes]]) -> None:
        for block_id, offset, data in extents:
            file = self.written.setdefault(block_id, bytearray())
            assert len(file) >= offset
            file[offset:] = data

    def fetch(self, block: MsgBlock, log: MessageLog) -> None:
        scan = Scan(bytes(self.written[block.block_id]), proven=block.durable_size)
        look_up_slots(scan, log.subjects)
        assert block.load(scan) == []

    def recover(self, limits: Limits) -> MessageLog:
        """Return the log that a store recovers without index.db, from the newest block on."""
        scans = [Scan(bytes(data)) for _, data in sorted(self.written.items())]
        removed, dead = SequenceSet(), SequenceSet()
        index, expiries = SubjectIndex(), Expiries()
        for scan in scans:
            assert scan.damage == []
            for _, _, encoded in scan.tombstones:
                removed.union_update(SequenceSet.decode(encoded))
        floor = max((scan.first_sequence for scan in scans), default=1)
        last = max((scan.last_sequence for scan in scans), default=0)
        blocks = [MsgBlock.from_scan(scan, BLOCK_BYTES) for scan in scans]
        upto = last
        for block in reversed(blocks):
            BlockShare(block, removed, floor).merge_into(index, expiries)
            note_gaps(block, block.base_sequence, upto, dead)
            upto = block.base_sequence - 1
        for block in blocks:
            set_slots(block, index)
        live = [sequence for block in blocks for sequence in block.live_sequences()]
        first = min(live, default=last + 1)
        dead.discard_range(0, first - 1)
        log = MessageLog(limits, self.make_block)
        log.take_over(
            blocks,
            index,
            dead,
            expiries,
            first_sequence=first,
            last_sequence=last,
            first_time_ns=0,
            last_time_ns=0,
            msgs=len(live),
            live_bytes=sum(block.live_bytes for block in blocks),
        )
        return log


@dataclass
class Taken:
    """The extents of a commit that is in flight, and the model as of that commit."""

    extents: list[tuple[int, int, bytes]]
    model: PlainStore


class JournalModel(RuleBasedStateMachine):
    """Random operations, commits and rollbacks on a log and on the plain model."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = Limits(max_msgs=14, max_msgs_per_subject=5)
        self.files = Files()
        self.log = MessageLog(self.limits, self.files.make_block)
        self.commits = LogCommits(self.log)
        self.now = PlainStore(self.limits)
        self.durable = self.now.copy()
        self.taken: Taken | None = None
        self.number = 0
        self.audience = Audience(self.log)

    def teardown(self) -> None:
        self.settle()
        assert self.contents(self.log) == self.now.matching(">")

    # ---- blocks that are not in memory

    def settle(self) -> None:
        while self.log.is_behind:
            try:
                settle_limits(self.log, 100)
            except ColdBlock as cold:
                self.files.fetch(cold.block, self.log)

    def do(self, operation: Operation) -> object:
        while True:
            try:
                if operation.step(50):
                    return operation.result
            except ColdBlock as cold:
                self.files.fetch(cold.block, self.log)

    def contents(self, log: MessageLog) -> list[object]:
        while True:
            try:
                found = [plain(each) for each in read_batch(log, 0, 1000, 1 << 30)]
            except StoreEOF:
                return []
            except ColdBlock as cold:
                self.files.fetch(cold.block, log)
                continue
            if len(found) == log.msgs:
                return found
            for block in log.all_blocks:
                if not block.has_cache or not block.has_arrays:
                    self.files.fetch(block, log)

    @rule(which=st.integers(0, 20), arrays=st.booleans())
    def evict(self, which: int, arrays: bool) -> None:
        blocks = self.log.all_blocks[:-1]
        if blocks:
            block = blocks[which % len(blocks)]
            block.clear_cache()
            if arrays:
                block.drop_arrays()

    # ---- writing

    @rule(
        subject=st.sampled_from(SUBJECTS),
        size=st.integers(0, 60),
        expires=st.sampled_from([0, 0, 5]),
        gap=st.sampled_from([0, 0, 0, 2]),
    )
    def append(self, subject: str, size: int, expires: int, gap: int) -> None:
        time_ns = self.now.last + 1
        sequence = time_ns + gap
        expires_ns = time_ns + expires if expires else 0
        arguments = (subject, None, b"d" * size, time_ns)
        self.now.append(*arguments, sequence, expires_ns)
        self.log.append(*arguments, sequence=sequence, expires_ns=expires_ns)
        self.settle()

    @rule(count=st.integers(1, 3))
    def skip(self, count: int) -> None:
        assert self.log.skip(count) == self.now.skip(count)

    @rule(back=st.integers(0, 14), erase=st.booleans())
    def delete(self, back: int, erase: bool) -> None:
        sequence = max(self.now.last - back, 1)
        while True:
            try:
                removed = self.log.delete(sequence, erase=erase)
                break
            except ColdBlock as cold:
                self.files.fetch(cold.block, self.log)
        assert removed == self.now.delete(sequence)

    @rule(pattern=st.sampled_from(["a.*", "b.>", "c"]), keep=st.integers(0, 2))
    def purge(self, pattern: str, keep: int) -> None:
        removed = self.do(Purge(self.log, Filter([pattern]), 0, keep))
        assert removed == self.now.purge(pattern, 0, keep)

    @rule()
    def purge_all(self) -> None:
        assert self.do(Purge(self.log, Filter([">"]))) == self.now.purge(">", 0, 0)

    @rule(ahead=st.integers(-5, 3))
    def compact(self, ahead: int) -> None:
        sequence = max(self.now.last + ahead, 1)
        assert self.do(Compact(self.log, sequence)) == self.now.compact(sequence)

    @rule()
    def expire(self) -> None:
        assert self.do(Expire(self.log, self.now.last)) == self.now.expire(self.now.last)

    # ---- committing

    @precondition(lambda self: self.taken is None)
    @rule(force=st.booleans())
    def take(self, force: bool) -> None:
        self.number += 1
        was_dirty = self.commits.is_dirty
        extents = self.commits.take(self.number, force=force)
        assert bool(extents) == (was_dirty or force)
        if extents:
            copies = [(block.block_id, each.offset, bytes(each)) for block, each in extents]
            self.taken = Taken(copies, self.now.copy())

    @precondition(lambda self: self.taken is not None)
    @rule()
    def commit(self) -> None:
        assert self.taken is not None
        self.files.write(self.taken.extents)
        self.durable, self.taken = self.taken.model, None
        for block in self.commits.committed():
            self.files.written.pop(block.block_id, None)
        recovered = self.files.recover(self.limits)
        assert self.contents(recovered) == self.durable.matching(">")
        assert recovered.last_sequence == self.durable.last
        assert recovered.first_sequence == self.durable.first
        assert list(recovered.dead) == self.durable.deleted

    @rule()
    def roll_back(self) -> None:
        for block in self.commits.rolled_back():
            assert block.block_id not in self.files.written
        self.now, self.taken = self.durable.copy(), None
        self.settle()

    @precondition(lambda self: self.commits.is_quiet)
    @rule()
    def sweep(self) -> None:
        self.do(Sweep(self.log))
        assert self.log.subjects.empty_subjects == 0

    # ---- reading

    @invariant()
    def every_removal_was_told(self) -> None:
        self.audience.check()

    @invariant()
    def state_is_exact(self) -> None:
        state = self.log.state(with_deleted=True)
        assert state.msgs == len(self.now.messages)
        assert state.bytes == self.now.live_bytes
        assert (state.first_sequence or 1, state.last_sequence) == (self.now.first, self.now.last)
        assert state.num_subjects == len(self.now.by_subject(">"))
        assert state.deleted is not None
        assert list(state.deleted) == self.now.deleted

    @rule(back=st.integers(0, 14), last_only=st.booleans())
    def look(self, back: int, last_only: bool) -> None:
        first = max(self.now.last - back, 1)
        pending = NumPending(self.log, Filter(["a.*", "b.>"]), first, last_only)
        expected = self.now.num_pending(first, ["a.*", "b.>"], last_only), self.now.last
        assert self.do(pending) == expected
        assert self.do(SubjectTotals(self.log, Filter([">"]))) == {
            subject: len(each) for subject, each in self.now.by_subject(">").items()
        }
        assert self.contents(self.log) == self.now.matching(">")


TestJournal = JournalModel.TestCase
TestJournal.settings = settings(max_examples=150 * TORTURE, stateful_step_count=40, deadline=None)


def test_a_removal_gives_up_nothing_before_it_is_durable() -> None:
    """A block is given up only after the removals that emptied it are durable."""
    files = Files()
    log = MessageLog(Limits(max_msgs=1), files.make_block)
    commits = LogCommits(log)
    for sequence in range(1, 21):
        log.append("a", None, b"x" * 60, sequence)
    assert len(log.all_blocks) == 1 and files.blocks_made > 2
    commits.take(1)
    assert [block.block_id for block in commits.committed()] == list(range(1, files.blocks_made))


def test_a_commit_that_failed_leaves_what_was_durable() -> None:
    """A rollback undoes appends together with the removals that they caused."""
    files = Files()
    log = MessageLog(Limits(max_msgs_per_subject=1), files.make_block)
    commits = LogCommits(log)
    log.append("a", None, b"first", 1)
    files.write([(block.block_id, each.offset, bytes(each)) for block, each in commits.take(1)])
    assert commits.committed() == []
    log.append("a", None, b"second", 2)
    assert log.load(2) is not None
    commits.take(2)
    log.append("b", None, b"third", 3)
    commits.rolled_back()
    message = log.load(1)
    assert message is not None and message.data == b"first"
    assert (log.msgs, log.last_sequence, log.subjects.count) == (1, 1, 1)
    with pytest.raises(StoreEOF):
        log.load(2)


def test_the_number_of_extents_is_that_of_the_blocks_since_the_last_commit() -> None:
    files = Files()
    log = MessageLog(Limits(), files.make_block)
    commits = LogCommits(log)
    for sequence in range(1, 30):
        log.append("a", None, b"x" * 100, sequence)
    extents = commits.take(1)
    assert [block.block_id for block, _ in extents] == list(range(1, files.blocks_made + 1))
    commits.committed()
    assert commits.take(2) == []
    assert commits.is_quiet


def test_a_search_passes_blocks_without_the_subject_by() -> None:
    """A search skips blocks without the subject, which need not be in memory."""
    files = Files()
    log = MessageLog(Limits(), files.make_block)
    commits = LogCommits(log)
    for sequence in range(1, 101):
        log.append("rare" if sequence in (1, 50, 100) else "often", None, b"x" * 100, sequence)
    files.write([(block.block_id, each.offset, bytes(each)) for block, each in commits.take(1)])
    commits.committed()
    loaded = {log.block_with(1), log.block_with(50), log.block_with(100)}
    for block in log.all_blocks:
        if block not in loaded:
            block.clear_cache()
            block.drop_arrays()
    log.delete(1)
    next_match = NextMatch(log, Filter(["rare"]), 2)
    pending = NumPending(log, Filter(["rare"]), 51)
    assert next_match.step(1 << 30) and next_match.result == 50
    assert pending.step(1 << 30) and pending.result == (1, 100)
    with pytest.raises(ColdBlock):
        NextMatch(log, Filter(["often"]), 8).step(1 << 30)
