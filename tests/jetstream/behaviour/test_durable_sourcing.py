"""Mirrors and sources that read through an existing durable consumer of the origin."""

from __future__ import annotations

import pytest

from tests.jetstream.behaviour.api import SECOND, Api, Json, soon
from tests.jetstream.behaviour.conftest import Connect, StartJetStream
from tests.jetstream.behaviour.copies import headers_of, message, messages, until_info, until_last

THROUGH = {"name": "C", "deliver_subject": "to.me"}


async def make_consumer(api: Api, **settings: object) -> None:
    """Create the consumer of stream O, with ack policy `flow_control`."""
    await api.create_consumer(
        "O",
        "C",
        **{
            "deliver_subject": "to.me",
            "ack_policy": "flow_control",
            "flow_control": True,
            "idle_heartbeat": SECOND,
            "max_ack_pending": 100,
            **settings,
        },
    )


async def until_acknowledged(api: Api, sequence: int) -> None:
    """Wait until the origin's consumer has the sequence as its ack floor."""

    async def probe() -> Json | None:
        info = await api.consumer_info("O", "C")
        return info if info["ack_floor"]["stream_seq"] == sequence else None

    await soon(probe)


async def test_a_source(api: Api) -> None:
    await api.create_stream("O", subjects=["o"])
    await make_consumer(api)
    await api.fill("o", 3)
    await api.create_stream("S", subjects=[], sources=[{"name": "O", "consumer": THROUGH}])
    await until_last(api, "S", 3)
    await until_acknowledged(api, 3)
    await api.publish("o")
    await until_last(api, "S", 4)
    [header] = headers_of(await message(api, "S", 4))
    name, *rest = header.removeprefix("Nats-Stream-Source: ").split(" ")
    assert name.startswith("O:C=")
    assert rest == ["4", ">", ">", "o"]


async def test_a_mirror(api: Api) -> None:
    await api.create_stream("O", subjects=["o"])
    await make_consumer(api)
    await api.fill("o", 3)
    await api.create_stream("M", subjects=[], mirror={"name": "O", "consumer": THROUGH})
    await until_last(api, "M", 3)
    await until_acknowledged(api, 3)
    assert await messages(api, "M") == await messages(api, "O")


async def test_a_work_queue_lets_go_of_what_is_stored(api: Api) -> None:
    await api.create_stream("O", subjects=["o"], retention="workqueue")
    await make_consumer(api)
    await api.fill("o", 250)
    await api.create_stream("S", subjects=[], sources=[{"name": "O", "consumer": THROUGH}])
    await until_last(api, "S", 250)
    await api.until_messages("O", 0)


@pytest.mark.natsd_only  # nats-server does not report it
async def test_the_consumer_is_not_there(api: Api) -> None:
    await api.create_stream("O", subjects=["o"])
    await api.create_stream("S", subjects=[], sources=[{"name": "O", "consumer": THROUGH}])
    info = await until_info(api, "S", lambda info: "error" in info["sources"][0])
    assert info["sources"][0]["error"]["err_code"] == 10014


async def test_it_stays_when_the_source_is_removed(api: Api) -> None:
    await api.create_stream("O", subjects=["o"])
    await make_consumer(api)
    await api.create_stream("S", subjects=["s"], sources=[{"name": "O", "consumer": THROUGH}])
    await until_info(api, "S", lambda info: info["sources"][0]["active"] >= 0)
    await api.update_stream("S", subjects=["s"])
    await api.until_consumers("O", 1)


@pytest.mark.parametrize("retention", ["limits", "workqueue"])
async def test_goes_on_after_a_restart(
    start_jetstream: StartJetStream, connect: Connect, retention: str
) -> None:
    api = Api(await connect(await start_jetstream()))
    await api.create_stream("O", subjects=["o"], storage="file", retention=retention)
    await make_consumer(api)
    sources = [{"name": "O", "consumer": THROUGH}]
    await api.create_stream("S", subjects=[], storage="file", sources=sources)
    await api.fill("o", 5)
    await until_last(api, "S", 5)
    api = Api(await connect(await start_jetstream()))
    await api.fill("o", 5)
    await until_last(api, "S", 10)
    came = [headers_of(each)[0].split(" ")[2] for each in await messages(api, "S")]
    assert came == [str(sequence) for sequence in range(1, 11)]
