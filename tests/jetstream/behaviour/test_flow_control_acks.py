"""Ack policy `flow_control`: answers to flow control acknowledge (`AckFlowControl`)."""

from __future__ import annotations

from typing import Any

import pytest
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from natsd.jetstream.short_hash import short_hash
from tests.jetstream.behaviour.api import SECOND, Api
from tests.jetstream.behaviour.puller import sequence_of, status_of


async def consumer(api: Api, messages: int, **config: Any) -> Subscription:
    """Create stream S with `messages` messages, and consumer C, which delivers to `d`."""
    await api.create_stream("S", subjects=["s"], **config.pop("stream", {}))
    for _ in range(messages):
        await api.publish("s", b"x")
    heard = await api.nc.subscribe("d")
    await api.create_consumer(
        "S", "C", deliver_subject="d", ack_policy="flow_control", **{"max_ack_pending": 3, **config}
    )
    return heard


async def until_asked(heard: Subscription) -> tuple[list[int], Msg]:
    """Return the messages, and the flow control request after them."""
    sequences = []
    while True:
        msg = await heard.next_msg(10)
        status = status_of(msg)
        if status is None:
            sequences.append(sequence_of(msg))
        elif status.text == "FlowControl Request":
            return sequences, msg


async def answer(api: Api, subject: str, stream: int = 0, consumer: int = 0) -> None:
    headers = {"Nats-Last-Stream": str(stream), "Nats-Last-Consumer": str(consumer)}
    await api.nc.publish(subject, headers=headers if stream else None)


class TestRules:
    @pytest.mark.parametrize(
        ("code", "config"),
        [
            (10218, {"deliver_subject": ""}),
            (10220, {"max_ack_pending": -1}),
            (10221, {"ack_wait": SECOND}),
            (10221, {"backoff": [SECOND]}),
            (10222, {"max_deliver": 3}),
        ],
    )
    async def test_refused(self, api: Api, code: int, config: dict[str, Any]) -> None:
        await api.create_stream("S", subjects=["s"])
        fields = {"deliver_subject": "d", "ack_policy": "flow_control", **config}
        await api.refuses_consumer("S", "C", code, **fields)

    async def test_what_is_filled_in(self, api: Api) -> None:
        await consumer(api, 0, max_ack_pending=0)
        config = (await api.consumer_info("S", "C"))["config"]
        assert (config["flow_control"], config["idle_heartbeat"]) == (True, SECOND)
        assert (config["max_ack_pending"], "ack_wait" in config) == (1000, False)
        assert config["metadata"]["_nats.req.level"] == "4"


async def test_as_many_as_may_be_pending(api: Api) -> None:
    heard = await consumer(api, 8)
    sequences, request = await until_asked(heard)
    assert sequences == [1, 2, 3]
    await answer(api, request.reply, 2, 2)
    sequences, request = await until_asked(heard)
    assert sequences == [4, 5]
    info = await api.consumer_info("S", "C")
    assert (info["ack_floor"]["stream_seq"], info["num_ack_pending"]) == (2, 3)
    await answer(api, request.reply, 5, 5)
    assert (await until_asked(heard))[0] == [6, 7, 8]


async def test_an_answer_without_headers_acknowledges_nothing(api: Api) -> None:
    heard = await consumer(api, 8)
    _, request = await until_asked(heard)
    await answer(api, request.reply)
    assert (await until_asked(heard))[0] == []  # asked again, with the heartbeat
    assert (await api.consumer_info("S", "C"))["num_ack_pending"] == 3


async def test_what_is_pending_is_asked_about_when_it_is_quiet(api: Api) -> None:
    heard = await consumer(api, 2)
    sequences, request = await until_asked(heard)
    assert sequences == [1, 2]
    await answer(api, request.reply, 2, 2)
    await api.until_consumer("S", "C", num_ack_pending=0)


async def test_only_the_last_request_can_be_answered(api: Api) -> None:
    heard = await consumer(api, 4)
    _, request = await until_asked(heard)
    await answer(api, "$JS.FC.S.C.0000", 3, 3)
    await answer(api, request.reply, 1, 1)
    assert (await until_asked(heard))[0] == [4]
    await answer(api, request.reply, 3, 3)
    info = await api.consumer_info("S", "C")
    assert (info["ack_floor"]["stream_seq"], info["num_ack_pending"]) == (1, 3)


async def test_acks_are_not_heard(api: Api) -> None:
    heard = await consumer(api, 3)
    msg = await heard.next_msg(10)
    await api.nc.publish(msg.reply, b"+ACK")
    assert (await api.consumer_info("S", "C"))["num_ack_pending"] == 3


async def test_a_work_queue_lets_go(api: Api) -> None:
    heard = await consumer(api, 3, stream={"retention": "workqueue"})
    _, request = await until_asked(heard)
    await answer(api, request.reply, 2, 2)
    assert (await api.until_messages("S", 1))["first_seq"] == 3


@pytest.mark.natsd_only  # nats-server accepts only one form, which a feature flag chooses
async def test_an_answer_that_names_domain_and_account(api: Api) -> None:
    heard = await consumer(api, 4)
    _, request = await until_asked(heard)
    account = short_hash(b"$G")
    tag = request.reply.removeprefix("$JS.FC.")
    await answer(api, f"$JS.FC.other.{account}.{tag}", 3, 3)
    await answer(api, f"$JS.FC._.{account}.{tag}", 1, 1)
    assert (await until_asked(heard))[0] == [4]
