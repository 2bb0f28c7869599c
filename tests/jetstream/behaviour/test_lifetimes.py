"""Lifetimes of single messages, and the markers that they leave (reference §6.4 allow_msg_ttl,
subject_delete_marker_ttl; §6.7 Nats-TTL, Nats-Marker-Reason)."""

from __future__ import annotations

import pytest

from tests.jetstream.behaviour.api import MS, SECOND, Api
from tests.jetstream.behaviour.conftest import Connect, StartJetStream

STORAGE = pytest.mark.parametrize("storage", ["memory", "file"])


@STORAGE
async def test_gone_when_it_is_over(api: Api, storage: str) -> None:
    """One message goes, the others stay."""
    await api.create_stream("S", storage=storage, subjects=["s.*"], allow_msg_ttl=True)
    await api.publish("s.1")
    await api.publish("s.2", Nats_TTL="1")
    await api.publish("s.3", Nats_TTL="1s")
    await api.publish("s.4", Nats_TTL="1h")
    assert (await api.stream_state("S"))["messages"] == 4
    await api.until_messages("S", 2)
    state = await api.stream_state("S", subjects_filter=">")
    assert state["subjects"] == {"s.1": 1, "s.4": 1}


async def test_before_the_age_of_the_stream(api: Api) -> None:
    await api.create_stream("S", allow_msg_ttl=True, max_age=3600 * SECOND)
    await api.publish("s")
    await api.publish("s", Nats_TTL="1")
    state = await api.until_messages("S", 1)
    assert (state["first_seq"], state["last_seq"]) == (1, 2)


async def test_never(api: Api) -> None:
    """`never` outlives the age of the stream."""
    await api.create_stream("S", allow_msg_ttl=True, max_age=200 * MS, duplicate_window=100 * MS)
    await api.publish("s", Nats_TTL="never")
    await api.publish("s")
    state = await api.until_messages("S", 1)
    assert state["first_seq"] == 1


@pytest.mark.parametrize("text", ["0", "x", "-1", "1ms", "1.5"])
async def test_nothing_that_could_be_meant(api: Api, text: str) -> None:
    await api.create_stream("S", allow_msg_ttl=True)
    await api.refuses_publish("s", 10165, Nats_TTL=text)


async def test_passes_while_the_server_is_down(
    start_jetstream: StartJetStream, connect: Connect
) -> None:
    api = Api(await connect(await start_jetstream()))
    await api.create_stream("S", storage="file", allow_msg_ttl=True)
    await api.publish("s")
    await api.publish("s", Nats_TTL="1")
    api = Api(await connect(await start_jetstream()))
    assert (await api.until_messages("S", 1))["first_seq"] == 1


async def test_allowed_for_ever(api: Api) -> None:
    """§6.4: it can be allowed later, and then not be taken back."""
    await api.create_stream("S")
    await api.refuses_publish("s", 10166, Nats_TTL="1m")
    await api.update_stream("S", allow_msg_ttl=True)
    await api.publish("s", Nats_TTL="1m")
    await api.refuses_update("S", 10052, allow_msg_ttl=False)


class TestMarkers:
    @STORAGE
    async def test_stands_for_the_last_of_a_subject(self, api: Api, storage: str) -> None:
        """It says why, lives for its own time, and leaves none itself."""
        created = await api.create_stream(
            "S", subjects=["s.*"], storage=storage, subject_delete_marker_ttl=SECOND
        )
        assert created["config"]["allow_msg_ttl"] is True
        assert created["config"]["allow_rollup_hdrs"] is True
        listener = await api.nc.jetstream().subscribe("s.*", ordered_consumer=True)
        await api.publish("s.1")
        await api.publish("s.2", Nats_TTL="1")
        await api.publish("s.1", Nats_TTL="1")
        messages = [await listener.next_msg(5) for _ in range(4)]
        marker = messages[-1]
        assert (marker.subject, marker.data) == ("s.2", b"")
        assert marker.headers == {
            "Nats-Marker-Reason": "MaxAge",
            "Nats-TTL": "1s",
            "Nats-Rollup": "sub",
        }
        state = await api.until_messages("S", 1)
        assert (state["first_seq"], state["last_seq"]) == (1, 4)
        await listener.unsubscribe()

    async def test_of_a_streams_age(self, api: Api) -> None:
        await api.create_stream(
            "S", max_age=SECOND, duplicate_window=SECOND, subject_delete_marker_ttl=60 * SECOND
        )
        await api.publish("s", b"x")
        await api.publish("s", b"y")
        while (await api.ok("STREAM.MSG.GET.S", {"last_by_subj": "s"}))["message"]["seq"] < 3:
            pass
        assert (await api.stream_state("S"))["messages"] == 1

    async def test_rules(self, api: Api) -> None:
        await api.refuses_stream("S", 10052, subject_delete_marker_ttl=1000)
        await api.refuses_stream("S", 10052, subject_delete_marker_ttl=-1)
