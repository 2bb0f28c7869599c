"""Scheduled messages, `Nats-Schedule` (ADR-51)."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.jetstream.behaviour.api import Api, Json, soon
from tests.jetstream.behaviour.conftest import Connect, StartJetStream

STORAGE = pytest.mark.parametrize("storage", ["memory", "file"])


def at(delay_s: float) -> str:
    """Return an `@at` schedule `delay_s` seconds from now."""
    return "@at " + (datetime.now(UTC) + timedelta(seconds=delay_s)).isoformat()


async def create(api: Api, **config: Any) -> Json:
    settings = {"subjects": ["s.>"], "allow_msg_schedules": True, "allow_msg_ttl": True, **config}
    return await api.create_stream("S", **settings)


async def last_of(api: Api, subject: str) -> Json | None:
    """Return the subject's last message with a list of header lines; None: there is none."""
    found = await api.request("STREAM.MSG.GET.S", {"last_by_subj": subject})
    if "error" in found:
        return None
    message: Json = found["message"]
    block = base64.b64decode(message.get("hdrs", "")).decode()
    data = base64.b64decode(message.get("data", ""))
    return message | {"lines": block.split("\r\n")[1:-2], "payload": data}


async def until(api: Api, subject: str) -> Json:
    return await soon(lambda: last_of(api, subject))


@STORAGE
async def test_once(api: Api, storage: str) -> None:
    """The message is published, the schedule is removed, and its control headers are omitted."""
    await create(api, storage=storage)
    await api.publish(
        "s.plan",
        b"hello",
        Nats_Schedule=at(0.3),
        Nats_Schedule_Target="s.out",
        Nats_Msg_Id="1",
        Nats_TTL="1h",
        Nats_Expected_Last_Subject_Sequence="0",
        Colour="blue",
    )
    found = await until(api, "s.out")
    assert found["payload"] == b"hello"
    assert found["lines"] == ["Colour: blue", "Nats-Scheduler: s.plan", "Nats-Schedule-Next: purge"]
    state = await api.stream_state("S", subjects_filter=">")
    assert state["subjects"] == {"s.out": 1}
    assert (state["first_seq"], state["last_seq"]) == (2, 2)


async def test_what_is_over_comes_at_once(api: Api) -> None:
    await create(api)
    await api.publish("s.plan", Nats_Schedule=at(-3600), Nats_Schedule_Target="s.out")
    assert (await until(api, "s.out"))["seq"] == 2


async def test_again_and_again(api: Api) -> None:
    """Each message names the time of the next one, and the schedule stays."""
    await create(api)
    await api.publish(
        "s.plan",
        b"tick",
        Nats_Schedule="@every 1s",
        Nats_Schedule_Target="s.out",
        Nats_Schedule_TTL="5m",
    )
    await api.until_messages("S", 3)
    found = await last_of(api, "s.out")
    assert found is not None
    scheduler, following, lifetime = found["lines"]
    assert (scheduler, lifetime) == ("Nats-Scheduler: s.plan", "Nats-TTL: 5m")
    name, _, time = following.partition(": ")
    assert name == "Nats-Schedule-Next"
    next_at, fired_at = datetime.fromisoformat(time), datetime.fromisoformat(found["time"])
    assert next_at.microsecond == 0
    assert timedelta(0) <= fired_at - next_at + timedelta(seconds=1) < timedelta(seconds=1.5)
    assert await last_of(api, "s.plan") is not None


async def test_rolling_up_what_it_produces(api: Api) -> None:
    await create(api)
    await api.fill("s.out", 3)
    await api.publish(
        "s.plan", Nats_Schedule=at(0), Nats_Schedule_Target="s.out", Nats_Schedule_Rollup="sub"
    )
    await api.until_messages("S", 1)
    found = await last_of(api, "s.out")
    assert found is not None
    assert found["lines"][-1] == "Nats-Rollup: sub"


async def test_by_the_calendar(api: Api) -> None:
    """A cron schedule has a time zone, in which `Nats-Schedule-Next` is written."""
    await create(api)
    await api.publish(
        "s.plan",
        Nats_Schedule="* * * * * *",
        Nats_Schedule_Target="s.out",
        Nats_Schedule_Time_Zone="Asia/Kathmandu",
    )
    found = await until(api, "s.out")
    assert found["lines"][1].endswith("+05:45")


async def test_what_another_subject_has(api: Api) -> None:
    """The message has the source subject's headers and payload at that time.

    If the source has no message, those of the schedule are used.
    """
    await create(api)
    await api.publish("s.room", b"20", Sensor="7")
    for plan, source in (("s.plan", "s.room"), ("s.other", "s.nothing")):
        await api.publish(
            plan,
            b"own",
            Nats_Schedule=at(0),
            Nats_Schedule_Target=f"{plan}.out",
            Nats_Schedule_Source=source,
        )
    copied = await until(api, "s.plan.out")
    assert copied["payload"] == b"20"
    assert copied["lines"][0] == "Sensor: 7"
    assert (await until(api, "s.other.out"))["payload"] == b"own"


async def test_the_last_one_holds(api: Api) -> None:
    """A schedule replaces earlier messages of its subject, and is stored with that rollup."""
    await create(api)
    await api.publish("s.plan", b"1", Nats_Schedule="@hourly", Nats_Schedule_Target="s.out")
    await api.publish("s.plan", b"2", Nats_Schedule=at(0.2), Nats_Schedule_Target="s.out")
    stored = await last_of(api, "s.plan")
    assert stored is not None
    assert stored["lines"][-1] == "Nats-Rollup: sub"
    assert (await api.stream_state("S"))["messages"] == 1
    assert (await until(api, "s.out"))["payload"] == b"2"


@pytest.mark.parametrize("how", ["purge", "delete", "message"])
async def test_taken_back(api: Api, how: str) -> None:
    """A schedule that is no longer its subject's last message does not fire; a later one does."""
    await create(api)
    ack = await api.publish("s.plan", Nats_Schedule=at(0.4), Nats_Schedule_Target="s.out")
    if how == "purge":
        await api.ok("STREAM.PURGE.S", {"filter": "s.plan"})
    elif how == "delete":
        await api.ok("STREAM.MSG.DELETE.S", {"seq": ack["seq"]})
    else:
        await api.publish("s.plan")
    await api.publish("s.later", Nats_Schedule=at(0.8), Nats_Schedule_Target="s.end")
    await until(api, "s.end")
    assert await last_of(api, "s.out") is None


async def test_a_client_ends_one(api: Api) -> None:
    """A client's message ends a schedule by naming its subject."""
    await create(api)
    await api.publish("s.plan", Nats_Schedule="@hourly", Nats_Schedule_Target="s.out")
    await api.publish("s.other")
    for subject, scheduler, following in (
        ("s.end", "s.other", "purge"),  # no schedule
        ("s.end", "s.*", "purge"),
        ("s.plan", "s.plan", "purge"),
        ("s.end", "s.plan", "2030-01-01T00:00:00Z"),
    ):
        await api.refuses_publish(
            subject, 10212, Nats_Scheduler=scheduler, Nats_Schedule_Next=following
        )
    await api.refuses_publish("s.end", 10212, Nats_Scheduler="s.plan")
    await api.refuses_publish("s.end", 10212, Nats_Schedule_Next="purge")
    await api.publish("s.end", Nats_Scheduler="s.plan", Nats_Schedule_Next="purge")
    assert await last_of(api, "s.plan") is None
    await api.publish("s.end", Nats_Scheduler="s.nothing", Nats_Schedule_Next="purge")


VALID: dict[str, Any] = {"Nats_Schedule": "@hourly", "Nats_Schedule_Target": "s.out"}
REFUSED = [
    (10189, {"Nats_Schedule": "@every 999ms"}),
    (10189, {"Nats_Schedule": "@every soon"}),
    (10189, {"Nats_Schedule": "@at tomorrow"}),
    (10189, {"Nats_Schedule": "@fortnightly"}),
    (10189, {"Nats_Schedule": "* * * * *"}),
    (10189, {"Nats_Schedule": "0 0 0 30 2 *"}),
    (10189, {"Nats_Schedule": "@every 1s", "Nats_Schedule_Time_Zone": "Europe/Paris"}),
    (10223, {"Nats_Schedule_Time_Zone": "Europe/Atlantis"}),
    (10223, {"Nats_Schedule_Time_Zone": "../../etc/passwd"}),
    (10190, {"Nats_Schedule_Target": ""}),
    (10190, {"Nats_Schedule_Target": "s.*"}),
    (10190, {"Nats_Schedule_Target": "s.plan"}),
    (10190, {"Nats_Schedule_Target": "elsewhere"}),
    (10203, {"Nats_Schedule_Source": "s.>"}),
    (10203, {"Nats_Schedule_Source": "s.plan"}),
    (10203, {"Nats_Schedule_Source": "s.out"}),
    (10203, {"Nats_Schedule_Source": "elsewhere"}),
    (10191, {"Nats_Schedule_TTL": "0s"}),
    (10192, {"Nats_Schedule_Rollup": "all"}),
    (10192, {"Nats_Rollup": "all"}),
]


@pytest.mark.parametrize(("code", "headers"), REFUSED, ids=[str(row) for row in REFUSED])
async def test_refused(api: Api, code: int, headers: dict[str, Any]) -> None:
    await create(api)
    await api.refuses_publish("s.plan", code, **(VALID | headers))
    assert (await api.stream_state("S"))["messages"] == 0


async def test_a_time_zone_alone_means_nothing(api: Api) -> None:
    await create(api)
    await api.publish("s.a", Nats_Schedule_Time_Zone="Europe/Paris")
    await api.refuses_publish("s.a", 10223, Nats_Schedule_Time_Zone="nowhere")


async def test_lifetimes_need_to_be_allowed(api: Api) -> None:
    await create(api, allow_msg_ttl=False)
    await api.refuses_publish("s.plan", 10166, **VALID, Nats_Schedule_TTL="5m")


async def test_a_stream_without_schedules(api: Api) -> None:
    await create(api, allow_msg_schedules=False)
    await api.refuses_publish("s.plan", 10188, **VALID)
    await api.refuses_publish("s.plan", 10188, Nats_Schedule="nonsense")
    await api.refuses_publish("s.plan", 10188, Nats_Schedule_Time_Zone="nowhere")
    await api.publish("s.plan", Nats_Schedule_Time_Zone="Europe/Paris")
    await api.refuses_publish("s.a", 10188, Nats_Scheduler="s.b", Nats_Schedule_Next="purge")
    await api.refuses_publish("s.a", 10212, Nats_Scheduler="s.b")


async def test_configuration(api: Api) -> None:
    """Enabling schedules enables rollups, permanently."""
    created = await create(api)
    assert created["config"]["allow_rollup_hdrs"]
    assert created["config"]["metadata"]["_nats.req.level"] == "2"
    settings = {"subjects": ["s.>"], "allow_msg_ttl": True}
    await api.refuses_update("S", 10052, **settings, allow_msg_schedules=False)
    await api.refuses_stream("T", 10052, allow_msg_schedules=True, discard="new", max_msgs=5)
    await api.refuses_stream("T", 10052, allow_msg_schedules=True, pedantic=True)


async def test_switched_on_later(api: Api) -> None:
    await create(api, allow_msg_schedules=False)
    await api.update_stream("S", subjects=["s.>"], allow_msg_ttl=True, allow_msg_schedules=True)
    await api.publish("s.plan", Nats_Schedule=at(0), Nats_Schedule_Target="s.out")
    await until(api, "s.out")


async def test_after_a_restart(start_jetstream: StartJetStream, connect: Connect) -> None:
    """A schedule that was missed during a stop fires once."""
    api = Api(await connect(await start_jetstream()))
    await create(api, storage="file")
    await api.publish("s.a", Nats_Schedule=at(0.5), Nats_Schedule_Target="s.once")
    await api.publish("s.b", Nats_Schedule="@every 1s", Nats_Schedule_Target="s.again")
    await api.nc.close()
    api = Api(await connect(await start_jetstream()))
    await until(api, "s.once")
    await until(api, "s.again")
    counts = (await api.stream_state("S", subjects_filter="s.once"))["subjects"]
    assert counts == {"s.once": 1}
    assert await last_of(api, "s.a") is None
