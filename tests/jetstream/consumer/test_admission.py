"""The consumers that a stream accepts beside existing ones: limits and work queues."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.core.routing import collide
from natsd.core.steps import at_once
from natsd.jetstream.consumer.admission import (
    check_room,
    check_work_queue,
    check_work_queue_update,
    is_partition,
)
from natsd.jetstream.errors import ApiError
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.stream import StreamConfig

WORK_QUEUE = StreamConfig.model_validate(
    {"name": "S", "subjects": ["a.>", "b"], "retention": "workqueue"}
)


def consumer(*filters: str, **fields: object) -> ConsumerConfig:
    given_fields = {"ack_policy": "explicit", "filter_subjects": list(filters)} | fields
    return ConsumerConfig.model_validate(given_fields)


@pytest.mark.parametrize(
    ("others", "new", "err_code"),
    [
        ([], consumer(ack_policy="all"), 10098),
        ([], consumer(ack_policy="none", deliver_subject="d"), 10098),
        ([], consumer(deliver_policy="new"), 10101),
        ([consumer()], consumer(), 10099),
        ([consumer()], consumer("b"), 10100),
        ([consumer("b")], consumer(), 10099),
        ([consumer("a.*.c")], consumer("a.b.*"), 10100),
        ([consumer("a.b", "b")], consumer("a.c", "b"), 10100),
    ],
)
def test_a_work_queue_refuses(
    others: list[ConsumerConfig], new: ConsumerConfig, err_code: int
) -> None:
    with pytest.raises(ApiError) as refused:
        at_once(check_work_queue(new, WORK_QUEUE, dict(zip("ABC", others, strict=False))))
    assert refused.value.err_code == err_code
    limits = WORK_QUEUE.model_copy(update={"retention": StreamConfig().retention})
    at_once(check_work_queue(new, limits, dict(zip("ABC", others, strict=False))))


def test_a_work_queue_takes_consumers_of_different_subjects() -> None:
    at_once(check_work_queue(consumer("b"), WORK_QUEUE, {"A": consumer("a.>")}))
    at_once(check_work_queue(consumer(), WORK_QUEUE, {}))


def test_what_mirrors_read_with_does_not_count() -> None:
    mirror = consumer(direct=True, ack_policy="none", deliver_subject="m")
    at_once(check_work_queue(consumer(), WORK_QUEUE, {"M": mirror}))
    at_once(check_work_queue(mirror, WORK_QUEUE, {"A": consumer()}))
    check_room(StreamConfig(max_consumers=1), -1, {"M": mirror})


def test_an_update_keeps_the_subjects_apart() -> None:
    others = {"A": consumer("a.b"), "C": consumer("b")}
    at_once(check_work_queue_update("C", consumer("a.c"), WORK_QUEUE, others))
    with pytest.raises(ApiError) as refused:
        at_once(check_work_queue_update("C", consumer("a.*"), WORK_QUEUE, others))
    assert refused.value.err_code == 10100
    with pytest.raises(ApiError) as refused:
        at_once(check_work_queue_update("C", consumer(), WORK_QUEUE, others))
    assert refused.value.err_code == 10099


@pytest.mark.parametrize(("stream", "account"), [(2, -1), (-1, 2), (9, 2), (2, 9)])
def test_the_smaller_of_two_limits_counts(stream: int, account: int) -> None:
    config = StreamConfig(max_consumers=stream)
    check_room(config, account, {"A": consumer()})
    with pytest.raises(ApiError) as refused:
        check_room(config, account, {"A": consumer(), "B": consumer()})
    assert refused.value.err_code == 10026


FILTERS = st.lists(
    st.sampled_from(["a", "b", "a.b", "a.*", "*.b", "a.>", ">", "a.b.c"]), max_size=3, unique=True
)


@given(FILTERS, st.lists(FILTERS, max_size=3))
def test_a_partition_shares_no_subject(mine: list[str], theirs: list[list[str]]) -> None:
    others = {str(number): consumer(*filters) for number, filters in enumerate(theirs)}
    wanted = [subject for filters in theirs for subject in filters or [">"]]
    expected = not any(collide(one, other) for one in mine for other in wanted)
    assert at_once(is_partition(mine, others)) == expected
