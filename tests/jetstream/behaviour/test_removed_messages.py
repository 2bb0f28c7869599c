"""A consumer's info right after its stream has removed delivered messages."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jetstream.behaviour.api import SECOND, Api, Json
from tests.jetstream.behaviour.puller import Puller


async def deliver_four_of_ten(api: Api, storage: str, **config: Any) -> None:
    """Create ten messages of four subjects and deliver the first four."""
    await api.create_stream("S", subjects=["s.*"], storage=storage)
    await api.create_consumer("S", "C", ack_wait=60 * SECOND, **config)
    for number in range(10):
        await api.publish(f"s.{number % 4}")
    puller = await Puller.of(api.nc, "S", "C")
    await puller.ask(batch=4)
    await puller.messages(4)


async def shown(api: Api) -> tuple[int, int, int, int]:
    """Return the delivered stream sequence, the ack floors, and the number of pending messages."""
    info: Json = await api.consumer_info("S", "C")
    floor = info["ack_floor"]
    return (
        info["delivered"]["stream_seq"],
        floor["consumer_seq"],
        floor["stream_seq"],
        info["num_ack_pending"],
    )


@pytest.mark.parametrize("storage", ["memory", "file"])
@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"seq": 3}, (4, 2, 2, 2)),
        ({"keep": 4}, (6, 4, 6, 0)),
        ({}, (10, 4, 10, 0)),
        ({"filter": "s.*"}, (10, 4, 10, 0)),
        ({"filter": "s.*", "keep": 2}, (8, 4, 8, 0)),
        ({"filter": "other"}, (4, 0, 0, 4)),
    ],
    ids=str,
)
async def test_a_purge_moves_the_floor_at_once(
    api: Api, storage: str, request_: dict[str, Any], expected: tuple[int, int, int, int]
) -> None:
    await deliver_four_of_ten(api, storage)
    await api.ok("STREAM.PURGE.S", request_)
    assert await shown(api) == expected
    lost = expected[3] < 4
    assert ("last_active" in (await api.consumer_info("S", "C"))["ack_floor"]) is lost


async def test_a_purge_of_the_filtered_subject(api: Api) -> None:
    await deliver_four_of_ten(api, "file", filter_subjects=["s.0", "s.1"])
    await api.ok("STREAM.PURGE.S", {"filter": "s.*"})
    assert await shown(api) == (10, 4, 10, 0)


async def test_deleted_messages_are_no_longer_pending(api: Api) -> None:
    """A removal counts as an acknowledgement, and sets its time."""
    await deliver_four_of_ten(api, "file")
    for sequence in (2, 1):
        await api.ok("STREAM.MSG.DELETE.S", {"seq": sequence})
    assert await shown(api) == (4, 2, 2, 2)
    assert "last_active" in (await api.consumer_info("S", "C"))["ack_floor"]


@pytest.mark.parametrize("storage", ["memory", "file"])
async def test_the_last_time_is_that_of_a_message_that_nobody_wanted(
    api: Api, storage: str
) -> None:
    await api.create_stream("S", retention="interest", storage=storage)
    await api.publish("s")
    state = await api.stream_state("S")
    assert (state["messages"], state["last_seq"]) == (0, 1)
    assert not state["last_ts"].startswith("0001")


class TestTheZeroTime:
    """`0001-01-01T00:00:00Z` is a valid time before all messages."""

    ZERO = "0001-01-01T00:00:00Z"

    async def test_is_a_start(self, api: Api) -> None:
        await api.create_stream("S", allow_direct=True)
        await api.fill("s", 2)
        found = await api.ok("STREAM.MSG.GET.S", {"start_time": self.ZERO})
        assert found["message"]["seq"] == 1
        direct = await api.raw("DIRECT.GET.S", {"start_time": self.ZERO})
        assert direct.headers is not None
        assert direct.headers["Nats-Sequence"] == "1"

    async def test_belongs_to_its_deliver_policy(self, api: Api) -> None:
        await api.create_stream("S")
        await api.fill("s", 2)
        await api.refuses_consumer("S", "C", 10094, opt_start_time=self.ZERO)
        info = await api.create_consumer(
            "S", "C", deliver_policy="by_start_time", opt_start_time=self.ZERO
        )
        assert info["config"]["opt_start_time"] == self.ZERO
        assert info["num_pending"] == 2
