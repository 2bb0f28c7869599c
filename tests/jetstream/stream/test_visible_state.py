"""Stream info ends at the last durable message (docs/store.md)."""

from hypothesis import given
from hypothesis import strategies as st

from natsd.jetstream.stream.state import visible_state
from natsd.store.block.blocks import MsgBlock
from natsd.store.log.message_log import MessageLog
from natsd.store.store import StoreState

subjects = st.sampled_from(["a", "b", "c"])


def new_log() -> MessageLog:
    return MessageLog(None, lambda base: MsgBlock(1, 0, base, 1 << 20))


def test_what_is_not_durable_is_not_counted() -> None:
    log = new_log()
    for time_ns, subject in enumerate(("a", "b", "a", "c"), 1):
        log.append(subject, None, b"payload", time_ns)
    size = log.live_bytes // 4
    assert visible_state(log, 4) == log.state()
    assert visible_state(log, 2) == StoreState(
        msgs=2,
        bytes=2 * size,
        first_sequence=1,
        first_time_ns=1,
        last_sequence=2,
        last_time_ns=2,
        num_subjects=2,
    )
    assert visible_state(log, 0) == StoreState()


def test_nothing_durable_is_left() -> None:
    log = new_log()
    for sequence in (1, 2, 3):
        log.append("a", None, b"", sequence)
    log.delete(1)
    log.delete(2)
    state = visible_state(log, 2)
    assert (state.msgs, state.bytes, state.first_sequence, state.last_sequence) == (0, 0, 3, 2)


@given(st.lists(subjects, min_size=1, max_size=30), st.sets(st.integers(1, 30)), st.data())
def test_it_is_the_state_of_a_log_that_ends_there(
    published: list[str], removed: set[int], data: st.DataObject
) -> None:
    log, shorter = new_log(), new_log()
    visible = data.draw(st.integers(1, len(published)))
    for time_ns, subject in enumerate(published, 1):
        log.append(subject, None, b"x" * time_ns, time_ns)
        if time_ns <= visible:
            shorter.append(subject, None, b"x" * time_ns, time_ns)
    for sequence in sorted(removed):
        if sequence <= len(published):
            log.delete(sequence)
        if sequence <= visible:
            shorter.delete(sequence)
    found, expected = visible_state(log, visible, with_deleted=True), shorter.state()
    for field in ("msgs", "bytes", "first_sequence", "last_sequence", "num_deleted"):
        assert getattr(found, field) == getattr(expected, field), field
    assert found.num_subjects >= expected.num_subjects
    deleted = shorter.state(with_deleted=True).deleted
    assert list(found.deleted or ()) == list(deleted or ())
    if expected.msgs:
        assert found.first_time_ns == expected.first_time_ns
