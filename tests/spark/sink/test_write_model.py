"""After any sequence of lost connections, refusals, kills and retries each row is stored once.

The model target has no duplicate window, so that only the records ensure this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.spark.sink import sending
from natsd.spark.sink.begin_records import WriteError
from natsd.spark.sink.write_task import Attempt, RowsDiffer, Task, Written
from natsd.spark.sink.written_columns import WrittenColumns
from tests.spark.model_target import Crash, ModelClient, ModelServer
from tests.spark.writing import BY_ID, PLAIN, batches, numbered, task, writing

OUTAGE_S = 100
"""The seconds between two attempts, longer than any lease."""


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "PAUSE_S", 0.0)
    monkeypatch.setattr(sending, "WAIT_S", 0.0)


def fated(fates: dict[int, str]) -> Callable[[int], str]:
    return lambda n: fates.get(n, "store")


def crashing_at(server: ModelServer, message: int) -> ModelClient:
    return ModelClient(server, lambda n: "crash" if n == message else "store")


def attempt(
    client: ModelClient,
    rows: list[Any],
    which: Task,
    size: int = 10,
    columns: WrittenColumns = PLAIN,
    **options: Any,
) -> Written:
    made = Attempt(
        writing(client.options, **options),
        columns,
        which,
        client,  # type: ignore[arg-type]  # a task cannot tell the difference
        client.server.read,
    )
    chunks = [columns.rows(batch) for batch in batches(rows, size)]
    return made.run(chunks[0], iter(chunks))


FATES = st.dictionaries(
    st.integers(0, 40), st.sampled_from(["crash", "cut", "drop", "refuse"]), max_size=5
)


@settings(max_examples=300, deadline=None)
@given(
    count=st.integers(1, 60),
    size=st.integers(1, 25),
    in_flight=st.integers(1, 30),
    tries=st.lists(FATES, max_size=6),
    others=st.lists(st.integers(0, 3), max_size=6),
)
def test_each_row_once_after_any_cuts(
    count: int, size: int, in_flight: int, tries: list[dict[int, str]], others: list[int]
) -> None:
    server = ModelServer()
    rows = numbered(count)
    for number, fates in enumerate([*tries, {}]):
        client = ModelClient(server, fated(fates))
        try:
            attempt(client, rows, task(attempt=number), size, max_in_flight=in_flight)
        except Crash:
            server.seconds += OUTAGE_S
    assert sorted(server.rows()) == sorted(rows)
    assert len({message.id for message in server.stored}) == count


@settings(max_examples=150, deadline=None)
@given(
    count=st.integers(1, 40),
    tries=st.lists(st.tuples(FATES, st.randoms(use_true_random=False)), max_size=5),
)
def test_rows_with_ids_may_come_in_any_order(count: int, tries: list[Any]) -> None:
    server = ModelServer()
    rows = [(f"orders.{at}", b"row %d" % at, None, f"id-{at}") for at in range(count)]
    for number, (fates, random) in enumerate([*tries, ({}, None)]):
        client = ModelClient(server, fated(fates))
        shuffled = list(rows)
        if random is not None:
            random.shuffle(shuffled)
        try:
            attempt(client, shuffled, task(run=f"run {number}"), columns=BY_ID)
        except Crash:
            server.seconds += OUTAGE_S
    assert sorted(message.id for message in server.stored) == sorted(row[3] for row in rows)


@settings(max_examples=150, deadline=None)
@given(
    count=st.integers(2, 40),
    crash_at=st.integers(0, 39),
    size=st.integers(1, 25),
    swap=st.tuples(st.integers(0, 39), st.integers(0, 39)),
)
def test_rows_in_another_order_are_refused_before_one_is_sent(
    count: int, crash_at: int, size: int, swap: tuple[int, int]
) -> None:
    server = ModelServer()
    rows = numbered(count)
    with pytest.raises(Crash):
        attempt(crashing_at(server, min(crash_at, count - 1)), rows, task(), size)
    server.seconds += OUTAGE_S
    before = server.rows()
    one, other = sorted(min(at, count - 1) for at in swap)
    changed = list(rows)
    changed[one], changed[other] = changed[other], changed[one]
    try:
        attempt(ModelClient(server), changed, task(attempt=1), size)
    except RowsDiffer:
        assert server.rows() == before
        attempt(ModelClient(server), rows, task(attempt=2), size)
        assert sorted(server.rows()) == sorted(rows)
    else:
        assert sorted(server.rows()) == sorted(rows)
        assert changed[: len(before)] == before  # the differing rows were never sent


@pytest.mark.parametrize("keep", [0, 5, 19])
def test_fewer_rows_are_refused(keep: int) -> None:
    server = ModelServer()
    rows = numbered(20)
    with pytest.raises(Crash):
        attempt(crashing_at(server, 19), rows, task(), 5)
    server.seconds += OUTAGE_S
    with pytest.raises(RowsDiffer, match="instead of at least 20"):
        attempt(ModelClient(server), rows[: max(keep, 1)], task(attempt=1), 5)


def test_a_task_whose_input_ended_early_goes_on() -> None:
    """Spark ends the input of a task that it gives up as if it were complete."""
    server = ModelServer()
    attempt(ModelClient(server), numbered(20), task())
    assert attempt(ModelClient(server), numbered(20), task(attempt=1)).found == 20
    assert attempt(ModelClient(server), numbered(33), task(attempt=2)).sent == 13
    assert server.rows() == numbered(33)


def test_rows_that_were_removed_since_are_not_sent_again() -> None:
    server = ModelServer()
    rows = numbered(20)
    with pytest.raises(Crash):
        attempt(crashing_at(server, 9), rows, task())
    server.seconds += OUTAGE_S
    server.removed = {3, 4, 8}  # replaced by newer values, or acknowledged by workers
    attempt(ModelClient(server), rows, task(attempt=1))
    assert server.rows() == rows


def test_what_is_refused_for_good_ends_the_task_in_one_line() -> None:
    class Full(ModelClient):
        def _arrive(self, reply: bytes, message: Any) -> None:
            error = {"code": 503, "err_code": 10077, "description": "maximum messages exceeded"}
            data = b'{"error":%b}' % str(error).replace("'", '"').encode()
            self.parser.feed(b"MSG %b 1 %d\r\n%b\r\n" % (reply, len(data), data))

    with pytest.raises(WriteError, match=r'refuses "orders.0": maximum messages .*make room') as e:
        attempt(Full(ModelServer()), numbered(3), task())
    assert "\n" not in str(e.value)


def test_an_id_column_cannot_come_or_go_in_the_middle() -> None:
    server = ModelServer()
    with pytest.raises(Crash):
        attempt(ModelClient(server, lambda _: "crash"), numbered(3), task())
    server.seconds += OUTAGE_S
    rows = [(*row, None, str(at)) for at, row in enumerate(numbered(3))]
    with pytest.raises(RowsDiffer, match="without an id column"):
        attempt(ModelClient(server), rows, task(attempt=1), columns=BY_ID)
    attempt(ModelClient(server), numbered(3), task(attempt=2))
    assert server.rows() == numbered(3)
