"""One example of each operation and each limit of a store, for every kind of store.

The answers are those of nats-server's `memStore`.
"""

from typing import Any

import pytest

from natsd.core.routing import InvalidSubject
from natsd.store.errors import (
    InvalidLimits,
    MaximumBytesExceeded,
    MaximumMessagesExceeded,
    MaximumMessageSizeExceeded,
    MaximumMessagesPerSubjectExceeded,
    MessageNotFound,
    SequenceMismatch,
    StoreClosed,
    StoreEOF,
    TooManyResults,
)
from natsd.store.log_store import LogStore
from natsd.store.store import Discard, Limits
from tests.store.conftest import OpenStore

HEADERS = b"NATS/1.0\r\nTrace: 1\r\n\r\n"


def fill(store: LogStore, *subjects: str) -> None:
    """Append one message for each subject; its data and its time are its sequence."""
    for number, subject in enumerate(subjects, store.state().last_sequence + 1):
        store.append(subject, None, str(number).encode(), number)


def data_in(store: LogStore) -> list[str]:
    try:
        found = store.read_batch_cached(0, 1000, 1 << 30)
    except StoreEOF:
        return []
    assert found is not None
    return [message.data.decode() for message in found]


class TestAppending:
    async def test_a_message_comes_back_as_it_was(self, open_store: OpenStore) -> None:
        store = await open_store()
        assert store.append("orders.eu", HEADERS, b"7 apples", 1_000) == 1
        message = await store.load(1)
        assert (message.sequence, message.subject, message.headers) == (1, "orders.eu", HEADERS)
        assert (message.data, message.time_ns, message.expires_ns) == (b"7 apples", 1_000, 0)

    async def test_subjects_are_text_or_bytes(self, open_store: OpenStore) -> None:
        store = await open_store()
        store.append("tür", None, b"", 1)
        store.append("tür".encode(), None, b"", 2)
        store.append(b"\xff", None, b"", 3)
        assert await store.subject_totals(">") == {"tür": 2, "\udcff": 1}

    async def test_it_is_durable_after_synced(self, open_store: OpenStore) -> None:
        store = await open_store()
        fill(store, "a", "b")
        await store.synced()
        assert store.durable_sequence == 2

    async def test_a_given_sequence_may_leave_a_gap(self, open_store: OpenStore) -> None:
        store = await open_store()
        assert store.append("a", None, b"", 1, sequence=5) == 5
        assert store.append("a", None, b"", 2, sequence=9) == 9
        assert store.append("a", None, b"", 3) == 10
        state = store.state(with_deleted=True)
        assert (state.first_sequence, state.last_sequence) == (5, 10)
        assert state.deleted is not None and list(state.deleted) == [6, 7, 8]

    async def test_a_given_sequence_never_goes_back(self, open_store: OpenStore) -> None:
        store = await open_store()
        fill(store, "a", "b")
        with pytest.raises(SequenceMismatch):
            store.append("a", None, b"", 3, sequence=2)
        assert data_in(store) == ["1", "2"]

    async def test_a_store_may_begin_at_a_given_sequence(self, open_store: OpenStore) -> None:
        store = await open_store(first_sequence=100)
        assert store.append("a", None, b"", 1) == 100

    async def test_skipped_sequences_have_no_message(self, open_store: OpenStore) -> None:
        store = await open_store()
        fill(store, "a")
        assert store.skip(3) == 4
        fill(store, "a")
        assert store.state().num_deleted == 3
        with pytest.raises(MessageNotFound):
            await store.load(2)

    async def test_the_largest_message_is_limited(self, open_store: OpenStore) -> None:
        store = await open_store(max_msg_size=30)
        store.append("a", HEADERS, b"x" * (30 - len(HEADERS)), 1)
        with pytest.raises(MaximumMessageSizeExceeded, match="message size exceeds maximum"):
            store.append("a", HEADERS, b"x" * (31 - len(HEADERS)), 1)
        assert store.state().msgs == 1


class TestDiscardOld:
    async def test_max_msgs(self, open_store: OpenStore) -> None:
        store = await open_store(max_msgs=2)
        fill(store, "a", "b", "c")
        assert data_in(store) == ["2", "3"]
        assert store.state().num_subjects == 2

    async def test_max_bytes(self, open_store: OpenStore) -> None:
        store = await open_store(max_bytes=3 * 42)
        fill(store, *"aaaa")
        assert data_in(store) == ["2", "3", "4"]
        with pytest.raises(MaximumBytesExceeded, match="maximum bytes exceeded"):
            store.append("a", None, b"x" * 200, 1)

    async def test_max_msgs_per_subject(self, open_store: OpenStore) -> None:
        store = await open_store(max_msgs_per_subject=1)
        fill(store, "a", "b", "a", "a")
        assert data_in(store) == ["2", "4"]
        assert await store.subject_totals(">") == {"a": 1, "b": 1}


class TestDiscardNew:
    async def test_max_msgs(self, open_store: OpenStore) -> None:
        store = await open_store(max_msgs=2, discard=Discard.NEW)
        fill(store, "a", "b")
        with pytest.raises(MaximumMessagesExceeded, match="maximum messages exceeded"):
            store.append("c", None, b"", 3)
        assert data_in(store) == ["1", "2"]
        await store.delete(1)
        assert store.append("c", None, b"", 3) == 3

    async def test_max_bytes(self, open_store: OpenStore) -> None:
        store = await open_store(max_bytes=100, discard=Discard.NEW)
        fill(store, "a", "b")
        with pytest.raises(MaximumBytesExceeded):
            store.append("c", None, b"", 3)

    async def test_a_full_subject_replaces_its_own(self, open_store: OpenStore) -> None:
        """A new message of a full subject replaces the oldest, since the stream does not grow."""
        store = await open_store(max_msgs=2, max_msgs_per_subject=1, discard=Discard.NEW)
        fill(store, "a", "b", "a")
        assert data_in(store) == ["2", "3"]

    async def test_per_subject(self, open_store: OpenStore) -> None:
        store = await open_store(
            max_msgs_per_subject=1, discard=Discard.NEW, discard_new_per_subject=True
        )
        fill(store, "a", "b")
        with pytest.raises(MaximumMessagesPerSubjectExceeded, match="per subject exceeded"):
            store.append("a", None, b"", 3)

    @pytest.mark.parametrize(
        "limits",
        [
            {"discard_new_per_subject": True, "max_msgs_per_subject": 1},
            {"discard_new_per_subject": True, "discard": Discard.NEW},
            {"max_age_ns": -1},
            {"first_sequence": -1},
        ],
    )
    def test_limits_that_make_no_sense(self, limits: dict[str, Any]) -> None:
        with pytest.raises(InvalidLimits):
            Limits(**limits)


class TestExpiry:
    async def test_by_age(self, open_store: OpenStore) -> None:
        store = await open_store(max_age_ns=10)
        fill(store, "a", "b", "c")
        assert store.next_expiry_ns() == 11
        assert await store.expire(10) == 0
        assert await store.expire(12) == 2
        assert data_in(store) == ["3"]
        assert store.next_expiry_ns() == 13

    async def test_by_the_messages_own_time(self, open_store: OpenStore) -> None:
        store = await open_store()
        store.append("a", None, b"long", 1, expires_ns=900)
        store.append("b", None, b"short", 2, expires_ns=50)
        store.append("c", None, b"for ever", 3)
        assert store.next_expiry_ns() == 50
        assert await store.expire(50) == 1
        assert data_in(store) == ["long", "for ever"]
        assert await store.expire(5_000) == 1
        assert store.next_expiry_ns() is None

    async def test_a_message_that_never_expires(self, open_store: OpenStore) -> None:
        """A message with `Nats-TTL: never` stays beyond max_age; the message behind it expires."""
        store = await open_store(max_age_ns=10)
        store.append("a", None, b"never", 1, expires_ns=-1)
        store.append("b", None, b"aged", 2)
        assert await store.expire(100) == 1
        assert data_in(store) == ["never"]

    async def test_after_one_that_never_expires(self, open_store: OpenStore) -> None:
        """The next expiry is that of the first message that may expire."""
        store = await open_store(max_age_ns=10)
        store.append("a", None, b"never", 1, expires_ns=-1)
        store.append("b", None, b"aged", 50)
        assert await store.expire(20) == 0
        assert store.next_expiry_ns() == 60
        assert await store.expire(60) == 1
        assert store.next_expiry_ns() is None

    @pytest.mark.parametrize("limits", [{}, {"max_age_ns": 10}])
    async def test_the_last_of_a_subject_is_given_away(
        self, open_store: OpenStore, limits: dict[str, int]
    ) -> None:
        """The last message of a subject is handed to `replace` instead of being removed.

        A message that `replace` does not remove is due again.
        """
        store = await open_store(**limits)
        for number, subject in enumerate(("a", "b", "a", "b", "c")):
            store.append(subject, b"h" * 12, b"", 1, expires_ns=number + 2)
        store.append("c", None, b"", 2)
        given: list[tuple[int, bytes, bytes]] = []

        def replace(due: list[tuple[int, bytes, bytes]]) -> None:
            given.extend(due)
            for sequence, subject, _ in due:
                if subject == b"a":
                    assert store.log.delete(sequence)

        assert await store.expire(11, replace) == 4
        assert given == [(3, b"a", b"h" * 12), (4, b"b", b"h" * 12)]
        assert store.next_expiry_ns() == 5
        given.clear()
        assert await store.expire(11, replace) == 0
        assert given == [(4, b"b", b"h" * 12)]

    async def test_a_removed_message_expires_no_more(self, open_store: OpenStore) -> None:
        store = await open_store()
        store.append("a", None, b"", 1, expires_ns=50)
        assert await store.delete(1)
        assert await store.expire(60) == 0


class TestRemoving:
    async def test_delete(self, open_store: OpenStore) -> None:
        store = await open_store()
        fill(store, "a", "b", "a")
        assert await store.delete(2)
        assert not await store.delete(2)
        assert not await store.delete(9)
        assert data_in(store) == ["1", "3"]
        with pytest.raises(MessageNotFound, match="no message found"):
            await store.load(2)
        with pytest.raises(StoreEOF, match="stream store EOF"):
            await store.load(4)

    async def test_erase(self, open_store: OpenStore) -> None:
        store = await open_store()
        fill(store, "a", "b")
        assert await store.erase(1)
        await store.synced()
        assert data_in(store) == ["2"]

    async def test_purge_all(self, open_store: OpenStore) -> None:
        """Sequences go on behind a purge of everything."""
        store = await open_store()
        fill(store, "a", "b")
        assert await store.purge() == 2
        state = store.state()
        assert (state.msgs, state.bytes, state.num_subjects) == (0, 0, 0)
        assert (state.first_sequence, state.last_sequence) == (3, 2)
        assert store.append("a", None, b"", 1) == 3

    async def test_purge_a_subject(self, open_store: OpenStore) -> None:
        store = await open_store()
        fill(store, "a.x", "b.x", "a.y", "b.y")
        assert await store.purge(pattern="a.*") == 2
        assert data_in(store) == ["2", "4"]

    async def test_purge_up_to_a_sequence(self, open_store: OpenStore) -> None:
        store = await open_store()
        fill(store, *"abab")
        assert await store.purge(pattern="a", up_to_sequence=3) == 1
        assert data_in(store) == ["2", "3", "4"]
        assert await store.purge(up_to_sequence=4) == 2
        assert data_in(store) == ["4"]
        assert await store.purge(up_to_sequence=1) == 0

    async def test_purge_but_keep_the_newest(self, open_store: OpenStore) -> None:
        store = await open_store()
        fill(store, *"abaab")
        assert await store.purge(pattern="a", keep=1) == 2
        assert data_in(store) == ["2", "4", "5"]
        assert await store.purge(keep=1) == 2
        assert data_in(store) == ["5"]

    async def test_compact(self, open_store: OpenStore) -> None:
        store = await open_store()
        fill(store, *"abcd")
        assert await store.compact(3) == 2
        assert data_in(store) == ["3", "4"]
        assert await store.compact(100) == 2
        assert store.append("a", None, b"", 1) == 100

    async def test_truncate(self, open_store: OpenStore) -> None:
        store = await open_store()
        fill(store, *"abcd")
        await store.truncate(2)
        assert data_in(store) == ["1", "2"]
        assert store.append("e", None, b"new 3", 3) == 3
        assert data_in(store) == ["1", "2", "new 3"]
        await store.truncate(0)
        assert store.state().last_sequence == 0

    async def test_smaller_limits_remove(self, open_store: OpenStore) -> None:
        store = await open_store()
        fill(store, *"aaabbb")
        store.update_limits(Limits(max_msgs_per_subject=2), 10)
        await store.settle()
        assert data_in(store) == ["2", "3", "5", "6"]
        store.update_limits(Limits(max_msgs=1), 10)
        await store.settle()
        assert data_in(store) == ["6"]


class TestReading:
    async def test_the_next_match(self, open_store: OpenStore) -> None:
        """`load_next` returns the message and the number of sequences that it passed over."""
        store = await open_store()
        fill(store, "a.x", "b", "a.y", "b", "a.x")
        message, skipped = await store.load_next("a.*", 2)
        assert (message.sequence, skipped) == (3, 1)
        message, skipped = await store.load_next("a.x", 2)
        assert (message.sequence, skipped) == (5, 3)
        message, skipped = await store.load_next(["a.y", "b"], 3)
        assert (message.sequence, skipped) == (3, 0)
        with pytest.raises(StoreEOF):
            await store.load_next("b", 5)

    async def test_the_last_match(self, open_store: OpenStore) -> None:
        store = await open_store()
        fill(store, "a.x", "b", "a.y", "b")
        assert (await store.load_last("b")).sequence == 4
        assert (await store.load_last("a.*")).sequence == 3
        await store.delete(4)
        assert (await store.load_last("b")).sequence == 2
        assert (await store.load_last(">")).sequence == 3
        with pytest.raises(MessageNotFound):
            await store.load_last("c")

    async def test_pending(self, open_store: OpenStore) -> None:
        store = await open_store()
        fill(store, "a.x", "b", "a.y", "a.x", "c")
        assert await store.num_pending(1, ">") == (5, 5)
        assert await store.num_pending(3, "a.*") == (2, 5)
        assert await store.num_pending(2, ["b", "a.x"]) == (2, 5)
        assert await store.num_pending(1, "a.*", last_per_subject=True) == (2, 5)
        assert await store.num_pending(9, ">") == (0, 5)

    async def test_overlapping_filters_count_once(self, open_store: OpenStore) -> None:
        store = await open_store()
        fill(store, "a.x", "a.y", "b.x")
        assert await store.num_pending(1, ["a.*", "*.x"]) == (3, 3)
        assert await store.multi_last(["a.*", "*.x"]) == [1, 2, 3]

    async def test_multi_last(self, open_store: OpenStore) -> None:
        store = await open_store()
        fill(store, "a.x", "a.y", "a.x", "a.y", "b")
        assert await store.multi_last(["a.*"]) == [3, 4]
        assert await store.multi_last(["a.*", "b"], up_to_sequence=3) == [2, 3]
        with pytest.raises(TooManyResults):
            await store.multi_last(["a.*"], max_allowed=1)

    async def test_a_batch(self, open_store: OpenStore) -> None:
        store = await open_store()
        fill(store, *"abcde")
        await store.delete(2)
        assert [each.sequence for each in await store.read_batch(1, 3, 1 << 20)] == [1, 3, 4]
        assert [each.sequence for each in await store.read_batch(4, 9, 1)] == [4]
        with pytest.raises(StoreEOF):
            await store.read_batch(6, 9, 1 << 20)

    async def test_a_filter_must_be_a_subject(self, open_store: OpenStore) -> None:
        store = await open_store()
        for pattern in ("a..b", ".a", "a.>.b"):
            with pytest.raises(InvalidSubject):
                await store.load_next(pattern, 1)

    async def test_state(self, open_store: OpenStore) -> None:
        store = await open_store()
        assert store.state().first_sequence == 0
        fill(store, "a", "b", "a")
        await store.delete(2)
        state = store.state(with_deleted=True)
        assert (state.msgs, state.bytes) == (2, 2 * 42)
        assert (state.first_sequence, state.first_time_ns) == (1, 1)
        assert (state.last_sequence, state.last_time_ns) == (3, 3)
        assert (state.num_subjects, state.num_deleted) == (1, 1)
        assert state.deleted is not None and list(state.deleted) == [2]


class TestClosing:
    async def test_a_closed_store_takes_nothing(self, open_store: OpenStore) -> None:
        store = await open_store()
        fill(store, "a")
        await store.close()
        await store.close()
        with pytest.raises(StoreClosed, match="store is closed"):
            store.append("a", None, b"", 1)
        with pytest.raises(StoreClosed):
            store.skip()
        with pytest.raises(StoreClosed):
            await store.purge(pattern="a")
