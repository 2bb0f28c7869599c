"""Per-message TTLs, and the delete markers that they leave (ADR-43)."""

from __future__ import annotations

import pytest

from tests.jetstream.behaviour.api import MS, SECOND, Api
from tests.jetstream.behaviour.conftest import Connect, StartJetStream

STORAGE = pytest.mark.parametrize("storage", ["memory", "file"])


@STORAGE
async def test_gone_when_it_is_over(api: Api, storage: str) -> None:
    """The expired message is removed, and the others stay."""
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
    """`never` outlives the stream's max_age."""
    await api.create_stream("S", allow_msg_ttl=True, max_age=200 * MS, duplicate_window=100 * MS)
    await api.publish("s", Nats_TTL="never")
    await api.publish("s")
    state = await api.until_messages("S", 1)
    assert state["first_seq"] == 1


@pytest.mark.parametrize("text", ["0", "x", "-1", "1ms", "1.5", "9" * 5000])
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
    """`allow_msg_ttl` can be enabled later, and never disabled again."""
    await api.create_stream("S")
    await api.refuses_publish("s", 10166, Nats_TTL="1m")
    await api.update_stream("S", allow_msg_ttl=True)
    await api.publish("s", Nats_TTL="1m")
    await api.refuses_update("S", 10052, allow_msg_ttl=False)


class TestMarkers:
    @STORAGE
    async def test_stands_for_the_last_of_a_subject(self, api: Api, storage: str) -> None:
        """A marker names its reason, has its own lifetime, and leaves no marker itself."""
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

    @pytest.mark.parametrize(
        ("headers", "stored"),
        [
            ({"Nats-TTL": "1", "A": "b"}, {"A": "b", "Nats-TTL": "60"}),
            ({"Nats-TTL": "2m"}, {"Nats-TTL": "2m"}),
            ({"Nats-TTL": "never"}, {"Nats-TTL": "never"}),
        ],
    )
    async def test_no_message_goes_before_a_marker_that_was_there(
        self, api: Api, headers: dict[str, str], stored: dict[str, str]
    ) -> None:
        """A lifetime shorter than the marker's is raised to it, in the headers too."""
        await api.create_stream("S", subject_delete_marker_ttl=60 * SECOND)
        await api.nc.request("s", b"x", headers=headers)
        message = await api.nc.jetstream().get_msg("S", 1)
        assert message.headers == stored

    async def test_where_a_subject_has_one_message_its_lifetime_stays(self, api: Api) -> None:
        await api.create_stream("S", subject_delete_marker_ttl=60 * SECOND, max_msgs_per_subject=1)
        await api.publish("s", b"x", Nats_TTL="1")
        while (await api.ok("STREAM.MSG.GET.S", {"last_by_subj": "s"}))["message"]["seq"] < 2:
            pass
        marker = await api.nc.jetstream().get_msg("S", 2)
        assert marker.headers is not None
        assert marker.headers["Nats-Marker-Reason"] == "MaxAge"

    @STORAGE
    async def test_who_removes_a_message_needs_no_marker(self, api: Api, storage: str) -> None:
        await api.create_stream(
            "S", subjects=["s.*"], storage=storage, subject_delete_marker_ttl=SECOND
        )
        for subject in ("s.deleted", "s.purged", "s.rolled"):
            await api.publish(subject)
        await api.ok("STREAM.MSG.DELETE.S", {"seq": 1})
        await api.ok("STREAM.PURGE.S", {"filter": "s.purged"})
        await api.publish("s.rolled", Nats_Rollup="sub")
        await api.publish("s.later")
        state = await api.stream_state("S", subjects_filter=">")
        assert state["subjects"] == {"s.rolled": 1, "s.later": 1}
        assert state["last_seq"] == 5

    async def test_a_purged_key_leaves_none(self, api: Api) -> None:
        """An expired purge marker of a client leaves no further marker."""
        await api.create_stream("S", subjects=["s.*"], subject_delete_marker_ttl=SECOND)
        purge = {"KV-Operation": "PURGE", "Nats-TTL": "1", "Nats-Rollup": "sub"}
        await api.nc.request("s.a", b"", headers=purge)
        await api.publish("s.b", Nats_TTL="1")
        listener = await api.nc.jetstream().subscribe("s.b", ordered_consumer=True)
        messages = [await listener.next_msg(5) for _ in range(2)]
        assert messages[1].metadata.sequence.stream == 3
        state = await api.until_messages("S", 0)
        assert state["last_seq"] == 3
        await listener.unsubscribe()

    async def test_placed_for_what_expired_while_the_server_was_down(
        self, start_jetstream: StartJetStream, connect: Connect
    ) -> None:
        api = Api(await connect(await start_jetstream()))
        await api.create_stream(
            "S", subjects=["s.*"], storage="file", subject_delete_marker_ttl=SECOND
        )
        for number in range(5):
            await api.publish(f"s.{number % 2}", Nats_TTL="1")
        server = await start_jetstream()
        api = Api(await connect(server))
        listener = await api.nc.jetstream().subscribe("s.*", ordered_consumer=True)
        marked: list[str] = []
        while len(marked) < 2:
            message = await listener.next_msg(5)
            if message.headers and "Nats-Marker-Reason" in message.headers:
                marked.append(message.subject)
        assert sorted(marked) == ["s.0", "s.1"]
        await listener.unsubscribe()

    async def test_rules(self, api: Api) -> None:
        await api.refuses_stream("S", 10052, subject_delete_marker_ttl=1000)
        await api.refuses_stream("S", 10052, subject_delete_marker_ttl=-1)
