"""The start positions of new consumers by deliver policy, among the visible messages."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from natsd.core.routing import matches
from natsd.jetstream.consumer.start_position import StartPosition, find_start
from natsd.jetstream.models.consumer import ConsumerConfig, DeliverPolicy
from natsd.store.mem_store import MemStore

SUBJECTS = ("a", "b", "c.d")


def stored(*subjects: str) -> MemStore:
    """Return a store of messages with sequences and times 1, 2, …"""
    store = MemStore()
    for time_ns, subject in enumerate(subjects, 1):
        store.append(subject, None, b"", time_ns)
    return store


async def start(
    store: MemStore, visible: int | None = None, *, per_subject: int = -1, **fields: object
) -> StartPosition:
    log = store.log
    config = ConsumerConfig.model_validate(fields)
    upto = log.last_sequence if visible is None else visible
    return await find_start(config, store, log, upto, max_msgs_per_subject=per_subject)


async def test_all_begins_with_the_first_message() -> None:
    store = stored("a", "b", "c")
    assert await start(store) == StartPosition(1)
    await store.delete(1)
    assert await start(store) == StartPosition(2)
    await store.purge()
    assert await start(store) == StartPosition(4)
    assert await start(MemStore()) == StartPosition(1)


async def test_new_begins_behind_what_is_visible() -> None:
    store = stored("a", "b", "c")
    assert await start(store, deliver_policy="new") == StartPosition(4)
    assert await start(store, 2, deliver_policy="new") == StartPosition(3)


async def test_last_begins_with_the_last_message_that_is_wanted() -> None:
    store = stored("a", "b", "a", "c")
    assert await start(store, deliver_policy="last") == StartPosition(4)
    assert await start(store, deliver_policy="last", filter_subject="a") == StartPosition(3)
    assert await start(store, 2, deliver_policy="last", filter_subject="a") == StartPosition(1)
    filters = ["a", "b"]
    assert await start(store, deliver_policy="last", filter_subjects=filters) == StartPosition(3)
    assert await start(store, deliver_policy="last", filter_subject="x") == StartPosition(1)


async def test_a_sequence_may_lie_in_the_future_and_not_in_the_past() -> None:
    store = stored("a", "b", "c")
    await store.purge(up_to_sequence=3)
    policy = "by_start_sequence"
    assert await start(store, deliver_policy=policy, opt_start_seq=9) == StartPosition(9)
    assert await start(store, deliver_policy=policy, opt_start_seq=1) == StartPosition(3)


async def test_a_time_is_that_of_the_first_message_at_or_after_it() -> None:
    store = stored("a", "b", "c")
    policy = "by_start_time"
    at_two = "1970-01-01T00:00:00.000000002Z"
    late = "1970-01-01T00:00:01Z"
    assert await start(store, deliver_policy=policy, opt_start_time=at_two) == StartPosition(2)
    assert await start(store, deliver_policy=policy, opt_start_time=late) == StartPosition(4)
    assert await start(store, 1, deliver_policy=policy, opt_start_time=late) == StartPosition(2)


async def test_last_per_subject_is_a_list_and_what_comes_behind_it() -> None:
    store = stored("a", "b", "a", "c", "b")
    fields: dict[str, Any] = {"deliver_policy": "last_per_subject", "filter_subjects": ["a", "b"]}
    assert await start(store, **fields) == StartPosition(3, (3, 5), 5)
    assert await start(store, 4, **fields) == StartPosition(2, (2, 3), 4)
    assert await start(MemStore(), **fields) == StartPosition(1, (), 0)
    assert await start(store, per_subject=1, **fields) == StartPosition(1)


async def test_last_per_subject_without_a_match_begins_at_the_last_message() -> None:
    store = stored("a", "b", "a", "c")
    fields = {"deliver_policy": "last_per_subject", "filter_subject": "x"}
    assert await start(store, **fields) == StartPosition(4, (), 4)
    assert await start(store, 2, **fields) == StartPosition(2, (), 2)
    await store.purge()
    assert await start(store, **fields) == StartPosition(5, (), 4)


@example(["a"] * 4, {3}, DeliverPolicy.BY_START_SEQUENCE, "", 0, 3)
@given(
    st.lists(st.sampled_from(SUBJECTS), max_size=12),
    st.sets(st.integers(1, 12)),
    st.sampled_from(DeliverPolicy),
    st.sampled_from(["", "a", ">", "c.*"]),
    st.integers(0, 12),
    st.integers(1, 15),
)
async def test_nothing_that_is_asked_for_lies_before_the_start(
    subjects: list[str],
    deleted: set[int],
    policy: DeliverPolicy,
    wanted: str,
    hidden: int,
    position: int,
) -> None:
    store = stored(*subjects)
    for sequence in deleted:
        await store.delete(sequence)
    visible = max(len(subjects) - hidden, 0)
    there = [
        sequence
        for sequence in range(1, visible + 1)
        if sequence not in deleted and matches(subjects[sequence - 1], wanted or ">")
    ]
    config = ConsumerConfig(
        deliver_policy=policy,
        filter_subject=wanted,
        opt_start_seq=position if policy is DeliverPolicy.BY_START_SEQUENCE else 0,
        opt_start_time=position if policy is DeliverPolicy.BY_START_TIME else 0,
    )
    found = await find_start(config, store, store.log, visible)
    match policy:
        case DeliverPolicy.ALL:
            expected = there
        case DeliverPolicy.LAST:
            expected = there[-1:] if wanted else [s for s in there if s >= visible]
        case DeliverPolicy.NEW:
            expected = []
        case DeliverPolicy.LAST_PER_SUBJECT:
            last = {subjects[sequence - 1]: sequence for sequence in there}
            assert sorted(last.values()) == sorted(found.last_per_subject or ())
            return
        case _:
            expected = [sequence for sequence in there if sequence >= position]
    assert [sequence for sequence in there if sequence >= found.sequence] == expected
    if policy is DeliverPolicy.BY_START_SEQUENCE and found.sequence == position:
        return  # a given sequence stays, also if its message is gone
    assert visible < found.sequence or found.sequence in there or not expected or wanted
