"""Subject transforms and republishing (ADR-28)."""

from __future__ import annotations

import pytest

from tests.jetstream.behaviour.api import Api


class TestTransform:
    async def test_stored_under_another_subject(self, api: Api) -> None:
        await api.create_stream(
            "S",
            subjects=["in.*.*"],
            subject_transform={"src": "in.*.*", "dest": "out.{{wildcard(2)}}.{{wildcard(1)}}"},
        )
        await api.publish("in.a.b", b"x")
        message = (await api.ok("STREAM.MSG.GET.S", {"seq": 1}))["message"]
        assert message["subject"] == "out.b.a"
        state = await api.stream_state("S", subjects_filter=">")
        assert state["subjects"] == {"out.b.a": 1}

    async def test_what_does_not_match_stays(self, api: Api) -> None:
        await api.create_stream(
            "S", subjects=["in.>"], subject_transform={"src": "in.a", "dest": "out.a"}
        )
        await api.publish("in.a")
        await api.publish("in.b")
        state = await api.stream_state("S", subjects_filter=">")
        assert state["subjects"] == {"out.a": 1, "in.b": 1}

    @pytest.mark.parametrize(
        ("source", "destination", "subject", "stored"),
        [
            ("a.*", "b.$1", "a.x", "b.x"),
            ("a.*", "b.{{partition(3,1)}}", "a.x", None),
            ("a.*", "b.{{split(1,-)}}", "a.x-y-z", "b.x.y.z"),
            ("a.*", "b.{{slicefromleft(1,2)}}", "a.abcde", "b.ab.cd.e"),
            ("a.*", "b.{{splitfromleft(1,3)}}", "a.abcde", "b.abc.de"),
            ("a.>", "b.>", "a.x.y", "b.x.y"),
            ("", "pre.>", "a.x", "pre.a.x"),
        ],
    )
    async def test_functions(
        self, api: Api, source: str, destination: str, subject: str, stored: str | None
    ) -> None:
        transform = {"src": source, "dest": destination}
        await api.create_stream("S", subjects=["a.>"], subject_transform=transform)
        await api.publish(subject)
        got = (await api.ok("STREAM.MSG.GET.S", {"seq": 1}))["message"]["subject"]
        if stored is None:
            assert got in {"b.0", "b.1", "b.2"}
        else:
            assert got == stored

    async def test_bad(self, api: Api) -> None:
        for source, destination in (
            ("in.*", "out.{{wildcard(2)}}"),
            ("in.*", "out.{{nothing(1)}}"),
        ):
            await api.refuses_stream(
                "S",
                10156,
                subjects=["in.*"],
                subject_transform={"src": source, "dest": destination},
            )
        await api.refuses_stream(
            "S", 10155, subjects=["in.*"], subject_transform={"src": "in..x", "dest": "out"}
        )

    async def test_limits_count_the_new_subject(self, api: Api) -> None:
        await api.create_stream(
            "S",
            subjects=["in.*"],
            max_msgs_per_subject=1,
            subject_transform={"src": "in.*", "dest": "one"},
        )
        for subject in ("in.1", "in.2"):
            await api.publish(subject)
        assert (await api.stream_state("S"))["messages"] == 1

    async def test_expectation_is_of_the_new_subject(self, api: Api) -> None:
        await api.create_stream(
            "S", subjects=["in.*"], subject_transform={"src": "in.*", "dest": "one"}
        )
        await api.publish("in.1", Nats_Expected_Last_Subject_Sequence="0")
        await api.refuses_publish("in.2", 10071, Nats_Expected_Last_Subject_Sequence="0")


class TestRepublish:
    async def test_with_its_place(self, api: Api) -> None:
        await api.create_stream(
            "S", subjects=["in.*"], republish={"src": "in.*", "dest": "out.{{wildcard(1)}}"}
        )
        listener = await api.nc.subscribe("out.*")
        await api.publish("in.1", b"one", Mine="1")
        await api.publish("in.1", b"two")
        await api.publish("in.2", b"three")
        messages = [await listener.next_msg(5) for _ in range(3)]
        assert [(m.subject, m.data) for m in messages] == [
            ("out.1", b"one"),
            ("out.1", b"two"),
            ("out.2", b"three"),
        ]
        first, second, third = (m.headers or {} for m in messages)
        assert first["Mine"] == "1"
        assert (first["Nats-Stream"], first["Nats-Subject"]) == ("S", "in.1")
        assert (first["Nats-Sequence"], first["Nats-Last-Sequence"]) == ("1", "0")
        assert (second["Nats-Sequence"], second["Nats-Last-Sequence"]) == ("2", "1")
        assert (third["Nats-Sequence"], third["Nats-Last-Sequence"]) == ("3", "0")
        stored = (await api.ok("STREAM.MSG.GET.S", {"seq": 1}))["message"]
        assert first["Nats-Time-Stamp"] == stored["time"]

    async def test_headers_only(self, api: Api) -> None:
        await api.create_stream("S", republish={"src": ">", "dest": "out.>", "headers_only": True})
        listener = await api.nc.subscribe("out.>")
        await api.publish("s", b"0123456789")
        message = await listener.next_msg(5)
        assert (message.subject, message.data) == ("out.s", b"")
        assert (message.headers or {})["Nats-Msg-Size"] == "10"

    async def test_only_what_matches(self, api: Api) -> None:
        await api.create_stream("S", subjects=["in.*"], republish={"src": "in.a", "dest": "out.a"})
        listener = await api.nc.subscribe("out.>")
        await api.publish("in.b")
        await api.publish("in.a", b"this")
        assert (await listener.next_msg(5)).data == b"this"

    async def test_not_what_is_refused_or_known(self, api: Api) -> None:
        await api.create_stream(
            "S", max_msgs=2, discard="new", republish={"src": "s", "dest": "out"}
        )
        listener = await api.nc.subscribe("out")
        await api.publish("s", b"1", Nats_Msg_Id="1")
        await api.publish("s", b"1", Nats_Msg_Id="1")
        await api.publish("s", b"2")
        await api.refuses_publish("s", 10077)
        assert [(await listener.next_msg(5)).data for _ in range(2)] == [b"1", b"2"]
        await api.nc.flush()
        assert listener.pending_msgs == 0

    async def test_cycles(self, api: Api) -> None:
        """A republished message must not return to the stream."""
        await api.refuses_stream(
            "S", 10052, subjects=["s.>"], republish={"src": "s.a", "dest": "s.b"}
        )

    async def test_into_another_stream(self, api: Api) -> None:
        await api.create_stream("S", republish={"src": "s", "dest": "t"})
        await api.create_stream("T")
        await api.fill("s", 3, b"x")
        await api.until_messages("T", 3)

    async def test_changed_and_ended(self, api: Api) -> None:
        await api.create_stream("S", republish={"src": "s", "dest": "out"})
        listener = await api.nc.subscribe("out")
        others = await api.nc.subscribe("other")
        await api.publish("s", b"1")
        await api.update_stream("S", republish={"src": "s", "dest": "other"})
        await api.publish("s", b"2")
        await api.update_stream("S")
        await api.publish("s", b"3")
        assert (await listener.next_msg(5)).data == b"1"
        assert (await others.next_msg(5)).data == b"2"
        await api.nc.flush()
        assert (listener.pending_msgs, others.pending_msgs) == (0, 0)
