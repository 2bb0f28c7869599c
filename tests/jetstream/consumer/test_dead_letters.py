"""Dead letters (docs/dead-letters.md): whole copies; a message is settled after its copy.

Until the copy is stored it stays pending, through restarts, failures and changes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from natsd.jetstream.consumer.consumer import Consumer
from natsd.jetstream.consumer.dead_letter_message import Death, letter_headers
from natsd.jetstream.consumer.dead_letters import why_refused
from natsd.jetstream.errors import ApiError
from natsd.jetstream.models.stream import DiscardPolicy
from natsd.jetstream.stream.stream import Stream
from natsd.store.codec.records import StoredMessage
from tests.jetstream.consumer.serving import SECOND, Served, serving
from tests.waiting import Eventually

SUBJECT = "natsd.dead_letter_subject"
DEAD: dict[str, Any] = {"metadata": {SUBJECT: "dead.letters"}}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as served:
        await morgue(served)
        served.listen("inbox")
        yield served


async def morgue(served: Served, **fields: object) -> Stream:
    """Create the stream that stores dead letters."""
    return await served.stream(**{"name": "DEAD", "subjects": ["dead.>"]} | fields)


async def dead_letters(
    served: Served, stream: dict[str, Any] | None = None, **fields: object
) -> Stream:
    """Create a stream with a consumer C that has dead letters."""
    made = await served.stream(**(stream or {}))
    await served.consumer(made, **DEAD | fields)
    return made


async def deliver(served: Served, eventually: Eventually, count: int = 1) -> list[str]:
    """Deliver `count` messages and return their ack subjects."""
    before = len(served.received)
    served.ask("C", b"%d" % count)
    await eventually(lambda: len(served.received) == before + count)
    replies = [reply for _, reply, _, _ in served.received[before:]]
    assert None not in replies
    return [reply for reply in replies if reply]


def let_pass(served: Served, seconds: float) -> None:
    """Set the clock forward and run the timers that are then due."""
    served.clock.advance(seconds)
    served.jetstream.scheduler._timer_over()  # type: ignore[attr-defined]  # as the loop's timer


async def in_time(
    served: Served, eventually: Eventually, condition: Callable[[], object], seconds: float
) -> None:
    """Let time pass, again and again, until the condition holds.

    A failed copy is tried again after a pause from its failure, which may be later than the time to
    which the test has set its clock.
    """

    def holds() -> object:
        let_pass(served, seconds)
        return condition()

    await eventually(holds)


def letters(served: Served) -> list[dict[str, str]]:
    """Return the headers of the stored dead letters."""
    log = served.account.stream("DEAD").readers.log
    found = []
    for sequence in range(1, log.last_sequence + 1):
        if not log.has(sequence):
            continue
        block = loaded(served.account.stream("DEAD"), sequence).headers or b""
        lines = block.decode().split("\r\n")[1:-2]
        found.append(dict(line.split(": ", 1) for line in lines))
    return found


def loaded(stream: Stream, sequence: int = 1) -> StoredMessage:
    message = stream.readers.log.load(sequence)
    assert message is not None
    return message


def reports(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the logged lines about dead letters that are not copied yet."""
    lines = [record.getMessage() for record in caplog.records]
    return [line for line in lines if "dead letter" in line]


def owed(consumer: Consumer) -> int:
    return consumer.info().num_ack_pending


async def test_what_is_terminated_is_copied_whole(served: Served, eventually: Eventually) -> None:
    stream = await dead_letters(served)
    headers = b"NATS/1.0\r\nColour: red\r\nNats-Msg-Id: one\r\nNats-Expected-Stream: S\r\n\r\n"
    served.account.account.internal_client.publish("a.b", b"\0 body", headers=headers)
    [reply] = await deliver(served, eventually)
    served.acknowledge(reply, b"+TERM cannot\r\nbe read")
    await eventually(lambda: letters(served))
    copy = loaded(served.account.stream("DEAD"))
    assert (copy.subject, copy.data) == ("dead.letters", b"\0 body")
    time_ns = loaded(stream).time_ns
    assert letters(served) == [
        {
            "Colour": "red",
            "Nats-Original-Msg-Id": "one",
            "Nats-Original-Expected-Stream": "S",
            "Nats-Msg-Id": f"S.1.C.{time_ns}",
            "Nats-Dead-Letter-Stream": "S",
            "Nats-Dead-Letter-Sequence": "1",
            "Nats-Dead-Letter-Consumer": "C",
            "Nats-Dead-Letter-Reason": "terminated: cannot  be read",
            "Nats-Dead-Letter-Deliveries": "1",
            "Nats-Dead-Letter-Subject": "a.b",
            "Nats-Dead-Letter-Time": "2023-11-14T22:13:20Z",
        }
    ]
    await eventually(lambda: stream.consumer("C").info().ack_floor.stream_seq == 1)
    assert owed(stream.consumer("C")) == 0


async def test_what_nobody_handles_is_copied_though_nobody_asks(
    served: Served, eventually: Eventually
) -> None:
    stream = await dead_letters(served, max_deliver=2, ack_wait=10 * SECOND)
    await served.publish("b")
    for _ in range(2):
        await deliver(served, eventually)
        assert not letters(served)
        let_pass(served, 11)
    await eventually(lambda: letters(served))
    [letter] = letters(served)
    assert letter["Nats-Dead-Letter-Reason"] == "max_deliver"
    assert letter["Nats-Dead-Letter-Deliveries"] == "2"
    await eventually(lambda: owed(stream.consumer("C")) == 0)


async def test_the_last_refusal_is_not_waited_for(served: Served, eventually: Eventually) -> None:
    await dead_letters(served, max_deliver=1)
    await served.publish("b")
    [reply] = await deliver(served, eventually)
    served.acknowledge(reply, b"-NAK")
    await eventually(lambda: letters(served))


async def test_a_copy_waits_until_the_termination_is_on_disk(
    served: Served, eventually: Eventually
) -> None:
    """Otherwise a crash could cause a message to be delivered again after its copy."""
    stream = await dead_letters(served)
    await served.publish("b")
    [reply] = await deliver(served, eventually)
    store = stream.consumer("C").store
    changes = store.tracker.change_count
    served.acknowledge(reply, b"+TERM")
    await eventually(lambda: letters(served))
    assert store.durable_changes > changes


async def test_a_work_queue_keeps_the_message_until_the_copy_is_taken(
    served: Served, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """The target is full: the copy is retried with growing pauses, and reported once."""
    full = served.account.stream("DEAD").config.model_copy(
        update={"max_msgs": 1, "discard": DiscardPolicy.NEW}
    )
    await served.account.update_stream(full)
    await served.publish("dead.already")
    stream = await dead_letters(served, {"retention": "workqueue"})
    await served.publish("a.1", "a.2", "a.3")
    replies = await deliver(served, eventually, 3)
    with caplog.at_level(logging.WARNING):
        for reply in replies[:2]:
            served.acknowledge(reply, b"+TERM")
        served.acknowledge(replies[2])
        await eventually(lambda: stream.readers.log.msgs == 2 and reports(caplog))
        for seconds in (0.2, 1, 5, 40):
            let_pass(served, seconds)
            await eventually(lambda: owed(stream.consumer("C")) == 2)
        await served.account.stream("DEAD").purge()
        await in_time(served, eventually, lambda: stream.readers.log.msgs == 1, 40)
        await served.account.stream("DEAD").purge()
        await in_time(served, eventually, lambda: stream.readers.log.msgs == 0, 40)
    [report] = reports(caplog)
    assert "maximum messages exceeded" in report


async def terminated_without_target(served: Served, eventually: Eventually) -> Stream:
    """Terminate a message when no stream takes its dead letter."""
    stream = await dead_letters(served)
    await served.account.delete_stream("DEAD")
    await served.publish("b")
    [reply] = await deliver(served, eventually)
    served.acknowledge(reply, b"+TERM")
    await eventually(lambda: stream.consumer("C").store.tracker.terminated)
    return stream


async def test_a_target_that_is_gone_is_waited_for(served: Served, eventually: Eventually) -> None:
    stream = await terminated_without_target(served, eventually)
    for _ in range(5):
        let_pass(served, 31)
    assert owed(stream.consumer("C")) == 1
    await morgue(served)
    await in_time(served, eventually, lambda: letters(served), 31)
    await eventually(lambda: owed(stream.consumer("C")) == 0)


async def test_who_does_not_answer_is_asked_again(served: Served, eventually: Eventually) -> None:
    """If only a plain subscriber takes the letter, it is sent again with the same id."""
    stream = await dead_letters(served)
    await served.account.delete_stream("DEAD")
    heard: list[bytes] = []
    client = served.account.account.internal_client
    client.subscribe("dead.letters", lambda *message: heard.append(message[2]))
    await served.publish("b")
    [reply] = await deliver(served, eventually)
    served.acknowledge(reply, b"+TERM")
    await eventually(lambda: len(heard) == 1)
    let_pass(served, 5.1)
    await in_time(served, eventually, lambda: len(heard) > 1, 1)
    assert heard[0] == heard[1]
    assert owed(stream.consumer("C")) == 1


@pytest.mark.parametrize("cause", ["terminated", "max_deliver"])
async def test_a_restart_goes_on_with_what_is_owed(
    tmp_path: Path, eventually: Eventually, cause: str
) -> None:
    async with serving(tmp_path) as served:
        clock = served.clock
        await morgue(served)
        await dead_letters(served, max_deliver=1, ack_wait=10 * SECOND)
        await served.account.delete_stream("DEAD")
        served.listen("inbox")
        await served.publish("a.1", "a.2")
        replies = await deliver(served, eventually, 2)
        if cause == "terminated":
            served.acknowledge(replies[0], b"+TERM")
    async with serving(tmp_path, clock) as served:
        consumer = (await served.stream()).consumer("C")
        assert owed(consumer) == 2
        await morgue(served)
        let_pass(served, 5 if cause == "terminated" else 11)
        sequences = {"terminated": ["1"], "max_deliver": ["1", "2"]}[cause]
        await eventually(
            lambda: [x["Nats-Dead-Letter-Sequence"] for x in letters(served)] == sequences
        )
        await eventually(lambda: owed(consumer) == 2 - len(sequences))
        assert {x["Nats-Dead-Letter-Reason"] for x in letters(served)} == {cause}


async def test_a_dead_letter_is_delivered_to_nobody(served: Served, eventually: Eventually) -> None:
    stream = await dead_letters(served, ack_wait=10 * SECOND)
    await served.account.delete_stream("DEAD")
    await served.publish("b")
    [reply] = await deliver(served, eventually)
    served.acknowledge(reply, b"+TERM")
    for word in (b"-NAK", b'-NAK {"delay":1}', b"+WPI"):
        served.acknowledge(reply, word)
        served.ask("C")
        let_pass(served, 11)
    assert len(served.received) == 1
    served.acknowledge(reply)  # a late ack
    await eventually(lambda: owed(stream.consumer("C")) == 0)
    await morgue(served)
    let_pass(served, 31)
    await served.publish("b")
    assert not letters(served)


async def test_what_is_gone_is_not_copied(served: Served, eventually: Eventually) -> None:
    stream = await terminated_without_target(served, eventually)
    await stream.delete_message(1)
    await morgue(served)
    await in_time(served, eventually, lambda: owed(stream.consumer("C")) == 0, 31)
    assert not letters(served)


async def test_a_consumer_that_lets_go_of_its_dead_letters(
    served: Served, eventually: Eventually
) -> None:
    """Without the setting the consumer goes on as if it never had dead letters."""
    stream = await dead_letters(served, {"retention": "workqueue"}, max_deliver=1)
    await served.account.delete_stream("DEAD")
    await served.publish("a.1", "a.2")
    replies = await deliver(served, eventually, 2)
    served.acknowledge(replies[0], b"+TERM")
    served.acknowledge(replies[1], b"-NAK")
    consumer = stream.consumer("C")
    await eventually(lambda: consumer.store.tracker.terminated)
    await served.consumer(stream, metadata={}, max_deliver=1)
    await eventually(lambda: owed(consumer) == 0)
    await eventually(lambda: stream.readers.log.msgs == 1)  # a.2 stays, as in nats-server


async def test_another_subject_from_now_on(served: Served, eventually: Eventually) -> None:
    stream = await dead_letters(served)
    await served.consumer(stream, metadata={SUBJECT: "dead.other"})
    await served.publish("b")
    [reply] = await deliver(served, eventually)
    served.acknowledge(reply, b"+TERM")
    await eventually(lambda: letters(served))
    assert loaded(served.account.stream("DEAD")).subject == "dead.other"


async def test_hundreds_of_them(served: Served, eventually: Eventually) -> None:
    stream = await dead_letters(served)
    await served.publish(*["b"] * 300)
    for reply in await deliver(served, eventually, 300):
        served.acknowledge(reply, b"+TERM")
    await eventually(lambda: len(letters(served)) == 300)
    found = {int(letter["Nats-Dead-Letter-Sequence"]) for letter in letters(served)}
    assert found == set(range(1, 301))
    await eventually(lambda: owed(stream.consumer("C")) == 0)


async def test_who_is_unused_stays_while_it_owes_letters(
    served: Served, eventually: Eventually
) -> None:
    stream = await dead_letters(served, ack_wait=SECOND, inactive_threshold=5 * SECOND)
    await served.account.delete_stream("DEAD")
    await served.publish("b")
    [reply] = await deliver(served, eventually)
    served.acknowledge(reply, b"+TERM")
    await eventually(lambda: stream.consumer("C").store.tracker.terminated)
    for _ in range(4):
        let_pass(served, 6)
    assert "C" in stream.consumers
    await morgue(served)
    await in_time(
        served,
        eventually,
        lambda: "C" not in stream.consumers or owed(stream.consumer("C")) == 0,
        31,
    )
    await in_time(served, eventually, lambda: "C" not in stream.consumers, 6)


# Accepted settings


async def refused(call: Callable[[], object]) -> str:
    with pytest.raises(ApiError) as error:
        await call()  # type: ignore[misc]  # a coroutine function
    assert error.value.err_code == 10094
    return error.value.description.removeprefix("consumer ")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {SUBJECT: "nobody.listens"},
            "dead letter subject 'nobody.listens' is not captured by a stream",
        ),
        ({SUBJECT: "dead.*"}, "dead letter subject 'dead.*' is not a subject without wildcards"),
        ({SUBJECT: "dead..x"}, "dead letter subject 'dead..x' is not a subject without wildcards"),
        ({SUBJECT: ""}, "dead letter subject '' is not a subject without wildcards"),
        ({SUBJECT: "a.x"}, "dead letter subject 'a.x' leads back to the consumer"),
        ({"natsd.dead_leter": "x"}, "metadata has an unknown setting 'natsd.dead_leter'"),
    ],
)
async def test_what_is_refused(served: Served, fields: dict[str, str], text: str) -> None:
    stream = await served.stream()
    assert await refused(lambda: served.consumer(stream, metadata=fields)) == text
    await served.consumer(stream)
    assert await refused(lambda: served.consumer(stream, metadata=fields)) == text


@pytest.mark.parametrize("policy", ["none", "all"])
async def test_acknowledgements_are_explicit(served: Served, policy: str) -> None:
    stream = await served.stream()
    text = await refused(lambda: served.consumer(stream, ack_policy=policy, **DEAD))
    assert text == "with dead letters needs ack policy explicit"


async def test_another_subject_of_the_same_stream(served: Served) -> None:
    """A subject of the same stream is accepted if the consumer does not filter it."""
    stream = await served.stream()
    await served.consumer(stream, filter_subject="a.>", metadata={SUBJECT: "b"})


async def test_no_circle_over_other_consumers(served: Served) -> None:
    """S ─▶ dead.letters ─▶ a consumer of DEAD ─▶ other ─▶ one of OTHER ─▶ a.back in S."""
    stream = await served.stream()
    other = await served.stream(name="OTHER", subjects=["other"])
    await served.consumer(stream, **DEAD)
    await served.consumer(served.account.stream("DEAD"), metadata={SUBJECT: "other"})
    text = await refused(lambda: served.consumer(other, metadata={SUBJECT: "a.back"}))
    assert text == "dead letter subject 'a.back' leads back to the consumer"
    await served.consumer(other, metadata={SUBJECT: "dead.end"}, filter_subject="none")


async def test_a_circle_is_found_among_very_many_filters(served: Served) -> None:
    """A cycle is found by the interest in a dead letter, among many consumers and filters."""
    stream = await served.stream()
    dead = served.account.stream("DEAD")
    many = [f"dead.{number}.*" for number in range(3000)]
    await served.consumer(dead, filter_subjects=[*many, "dead.end.>"], metadata={SUBJECT: "a.back"})
    for subject in ("dead.letters", "dead.2999", "dead.3000.x"):
        await served.consumer(stream, filter_subject="a.>", metadata={SUBJECT: subject})
    for subject in ("dead.2999.x", "dead.end.x.y"):
        fields = {"filter_subject": "a.>", "metadata": {SUBJECT: subject}}
        text = await refused(partial(served.consumer, stream, **fields))
        assert text == f"dead letter subject '{subject}' leads back to the consumer"


async def test_a_stream_that_renames_what_it_stores(served: Served) -> None:
    stream = await served.stream(subject_transform={"src": "b", "dest": "a.renamed"})
    text = await refused(
        lambda: served.consumer(stream, filter_subject="a.>", metadata={SUBJECT: "b"})
    )
    assert text == "dead letter subject 'b' leads back to the consumer"


async def test_a_stream_that_acknowledges_nothing(served: Served) -> None:
    stream = await served.stream()
    await served.stream(name="MUTE", subjects=["mute"], no_ack=True)
    text = await refused(lambda: served.consumer(stream, metadata={SUBJECT: "mute"}))
    assert text == "dead letter subject 'mute': stream 'MUTE' acknowledges nothing"


# Headers and answers


def test_headers_of_a_message_without_any() -> None:
    message = StoredMessage(7, "a.b", None, b"x", 1_500_000_000)
    block = letter_headers(message, Death("S", "C", "max_deliver", 3))
    assert block.startswith(b"NATS/1.0\r\nNats-Msg-Id: S.7.C.1500000000\r\n")
    assert block.endswith(b"Nats-Dead-Letter-Time: 1970-01-01T00:00:01.5Z\r\n\r\n")


def test_a_dead_letter_that_dies_again_tells_of_both() -> None:
    first = letter_headers(
        StoredMessage(7, "a", b"NATS/1.0\r\nX: 1\r\n\r\n", b"", 5), Death("S", "C", "terminated", 1)
    )
    second = letter_headers(StoredMessage(1, "dead", first, b"", 9), Death("DEAD", "D", "x", 2))
    lines = second.split(b"\r\n")
    assert b"X: 1" in lines
    assert b"Nats-Original-Dead-Letter-Stream: S" in lines
    assert b"Nats-Original-Msg-Id: S.7.C.5" in lines
    assert b"Nats-Dead-Letter-Stream: DEAD" in lines


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b'{"stream":"D","seq":3}', ""),
        (b'{"stream":"D","seq":3,"duplicate":true}', ""),
        (json.dumps({"error": {"description": "full"}, "seq": 0}).encode(), "full"),
        (b"", "an answer that is no PubAck"),
        (b"[]", "an answer that is no PubAck"),
        (b'{"stream":"D"}', "an answer that is no PubAck"),
        (b'{"error":7}', "an answer that is no PubAck"),
    ],
)
def test_answers(answer: bytes, why: str) -> None:
    assert why_refused(answer) == why
