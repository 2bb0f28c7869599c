"""The checks find each breach of a promise that is planted in a journal without any."""

from collections.abc import Iterable

import pytest

from tests.cluster_proof.check import (
    check_aged_reads,
    check_deliveries,
    check_key_reads,
    check_keys,
    check_replicas,
    check_stream,
    delivered_again,
)
from tests.cluster_proof.journal import (
    AgedRead,
    Delivery,
    Journal,
    KeyWrite,
    Publish,
    payload_of,
)
from tests.cluster_proof.key_value import SUBJECT
from tests.cluster_proof.stored import Stored
from tests.sim.linearizability import Operation


def published(*message_ids: str) -> tuple[Journal, list[Stored]]:
    """Return a journal of messages that were acknowledged one after the other, and the stream."""
    journal = Journal()
    for at, message_id in enumerate(message_ids, start=1):
        journal.publishes[message_id] = Publish(message_id, 10 * at, 10 * at + 5, at)
    return journal, [stored(at, each) for at, each in enumerate(message_ids, start=1)]


def stored(sequence: int, message_id: str) -> Stored:
    return Stored(sequence, "proof.a", payload_of(message_id))


def kinds(problems: Iterable[str]) -> list[str]:
    return [problem.partition(":")[0] for problem in problems]


def test_a_stream_without_faults_has_no_problem() -> None:
    journal, stream = published("a", "b", "c")
    journal.deliveries = [Delivery(each.sequence, each.payload, 1) for each in stream]
    assert not list(check_stream(journal, stream))
    assert not list(check_replicas({"n1": stream, "n2": list(stream)}))
    assert not list(check_deliveries(journal, stream))


def test_a_publish_without_an_answer_may_be_stored_or_not() -> None:
    journal, stream = published("a")
    journal.publishes["b"] = Publish("b", 20)
    assert not list(check_stream(journal, stream))
    assert not list(check_stream(journal, [*stream, stored(2, "b")]))


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        ([("a", 1), ("b", 2)], ["lost"]),
        ([("a", 1), ("c", 3)], ["lost", "gap"]),
        ([("a", 1), ("b", 2), ("c", 3), ("z", 4)], ["phantom"]),
        ([("a", 1), ("b", 2), ("c", 3), ("a", 4)], ["twice", "order"]),
        ([("b", 1), ("a", 2), ("c", 3)], ["lost", "lost", "order"]),
    ],
)
def test_breaches_of_a_stream(kept: list[tuple[str, int]], expected: list[str]) -> None:
    journal, _ = published("a", "b", "c")
    assert kinds(check_stream(journal, [stored(at, each) for each, at in kept])) == expected


def test_a_changed_payload_is_a_phantom() -> None:
    journal, stream = published("a")
    changed = [Stored(1, "proof.a", stream[0].payload + b"!")]
    assert kinds(check_stream(journal, changed)) == ["lost", "phantom"]


def test_replicas_that_differ() -> None:
    _, stream = published("a", "b")
    assert kinds(check_replicas({"n1": stream, "n2": stream[:1]})) == ["replicas"]


def test_a_message_that_was_not_delivered_and_one_that_was_never_stored() -> None:
    journal, stream = published("a", "b")
    journal.deliveries = [Delivery(1, stream[0].payload, 1), Delivery(2, payload_of("z"), 2)]
    assert kinds(check_deliveries(journal, stream)) == ["phantom"]
    journal.deliveries.pop()
    assert kinds(check_deliveries(journal, stream)) == ["undelivered"]


def test_deliveries_after_a_confirmed_ack_are_counted() -> None:
    journal, stream = published("a")
    journal.confirmed_ns = {1: 50}
    journal.deliveries = [Delivery(1, stream[0].payload, at_ns) for at_ns in (40, 60)]
    assert delivered_again(journal) == 1


def key(value: int, revision: int, replaced: int, was: int) -> KeyWrite:
    """Return a write that was acknowledged at once."""
    at_ns = 10 * revision
    return KeyWrite("red", value, replaced, was, at_ns, at_ns + 5, revision)


def bucket(*values: int) -> list[Stored]:
    return [Stored(at, f"{SUBJECT}.red", b"%d" % each) for at, each in enumerate(values, start=1)]


def test_keys_without_faults() -> None:
    journal = Journal(key_writes=[key(7, 1, 0, 0), key(8, 2, 1, 7)])
    journal.key_reads = {"red": [Operation(16, 18, "read", 0, 7, 0)]}
    assert not list(check_keys(journal, bucket(7, 8)))
    assert not list(check_key_reads(journal))


def test_a_write_that_replaced_another_revision_than_it_expected() -> None:
    journal = Journal(key_writes=[key(7, 1, 0, 0), key(8, 2, 0, 0)])
    assert kinds(check_keys(journal, bucket(7, 8))) == ["keys", "linearizable"]


def test_a_write_that_is_lost() -> None:
    journal = Journal(key_writes=[key(7, 1, 0, 0), key(8, 2, 1, 7)])
    assert kinds(check_keys(journal, bucket(7))) == ["lost"]


def test_a_refused_write_that_is_stored() -> None:
    journal = Journal(key_writes=[KeyWrite("red", 7, 0, 0, 10, 15, is_refused=True)])
    assert kinds(check_keys(journal, bucket(7))) == ["keys"]


def test_a_read_of_an_old_value() -> None:
    journal = Journal(key_writes=[key(7, 1, 0, 0), key(8, 2, 1, 7)])
    journal.key_reads = {"red": [Operation(26, 28, "read", 0, 7, 0)]}
    assert kinds(check_key_reads(journal)) == ["linearizable"]


def test_a_read_of_a_value_that_never_was_committed() -> None:
    journal = Journal(key_writes=[key(7, 1, 0, 0), KeyWrite("red", 8, 1, 7, 20)])
    journal.key_reads = {"red": [Operation(26, 28, "read", 0, 8, 0)]}
    assert kinds(check_keys(journal, bucket(7))) == ["dirty"]


def test_an_answer_has_what_was_acknowledged_before_the_age_that_it_says() -> None:
    journal, _ = published("a-1", "b-1", "a-2")  # acknowledged at 15, 25 and 35
    fitting = [
        AgedRead("a", 1, 30, 0),
        AgedRead("a", 1, 40, 5),
        AgedRead("a", 3, 40, 0),
        AgedRead("a", 0, 20, 10),
        AgedRead("c", 0, 99, 0),
    ]
    journal.aged_reads = fitting
    assert not list(check_aged_reads(journal))
    journal.aged_reads = [*fitting, AgedRead("a", 1, 40, 4), AgedRead("b", 0, 90, 9)]
    assert kinds(check_aged_reads(journal)) == ["aged", "aged"]
