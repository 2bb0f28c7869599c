"""Messages of a stream: get, delete, purge and direct get (ADR-31)."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from tests.jetstream.behaviour.api import Api
from tests.jetstream.behaviour.conftest import Connect, StartJetStream

STORAGE = pytest.mark.parametrize("storage", ["memory", "file"])


async def orders(api: Api, storage: str = "memory") -> None:
    """Publish 1 a, 2 b, 3 a, 4 b, 5 a, 6 b."""
    await api.create_stream("S", storage=storage, subjects=["s.>"], allow_direct=True)
    for number in range(1, 7):
        await api.publish("s.a" if number % 2 else "s.b", b"%d" % number)


async def get(api: Api, **request: Any) -> tuple[int, str, bytes]:
    message = (await api.ok("STREAM.MSG.GET.S", request))["message"]
    return message["seq"], message["subject"], base64.b64decode(message.get("data", ""))


class TestGet:
    @STORAGE
    async def test_every_way(self, api: Api, storage: str) -> None:
        await orders(api, storage)
        assert await get(api, seq=3) == (3, "s.a", b"3")
        assert await get(api, last_by_subj="s.a") == (5, "s.a", b"5")
        assert await get(api, last_by_subj="s.*") == (6, "s.b", b"6")
        assert await get(api, next_by_subj="s.b", seq=3) == (4, "s.b", b"4")
        assert await get(api, next_by_subj="s.b", seq=4) == (4, "s.b", b"4")
        assert await get(api, next_by_subj="s.b") == (2, "s.b", b"2")
        assert await get(api, next_by_subj="s.>", seq=6) == (6, "s.b", b"6")

    async def test_nothing_found(self, api: Api) -> None:
        """The answer is 10037, however the message was looked for."""
        await orders(api)
        await api.ok("STREAM.MSG.DELETE.S", {"seq": 3})
        requests: list[dict[str, Any]] = [
            {"seq": 3},
            {"seq": 7},
            {"last_by_subj": "s.c"},
            {"last_by_subj": "t"},
            {"next_by_subj": "s.a", "seq": 6},
        ]
        for request in requests:
            await api.fails("STREAM.MSG.GET.S", 10037, request)

    async def test_bad_requests(self, api: Api) -> None:
        await orders(api)
        bad: list[Any] = [
            b"",
            {},
            {"seq": 1, "last_by_subj": "s.a"},
            {"next_by_subj": "s.a", "last_by_subj": "s.a"},
            {"seq": 1, "batch": 2},
            {"seq": 1, "max_bytes": 2},
            {"multi_last": ["s.a"]},
        ]
        for body in bad:
            await api.fails("STREAM.MSG.GET.S", 10003, body)
        await api.fails("STREAM.MSG.GET.S", 10025, b'{"seq":"1"}')
        await api.fails("STREAM.MSG.GET.T", 10059, {"seq": 1})

    async def test_from_a_time(self, api: Api) -> None:
        """`start_time` finds the first message at or after it, of a subject or of all."""
        await orders(api)
        times = {}
        for sequence in range(1, 7):
            found = await api.ok("STREAM.MSG.GET.S", {"seq": sequence})
            times[sequence] = found["message"]["time"]
        assert (await get(api, start_time=times[4]))[0] == 4
        assert (await get(api, start_time=times[4], next_by_subj="s.a"))[0] == 5
        assert (await get(api, start_time="2001-01-01T00:00:00Z"))[0] == 1
        await api.fails("STREAM.MSG.GET.S", 10037, {"start_time": "2101-01-01T00:00:00Z"})

    async def test_headers(self, api: Api) -> None:
        await api.create_stream("S")
        await api.publish("s", b"x", One="1", Two="2")
        message = (await api.ok("STREAM.MSG.GET.S", {"seq": 1}))["message"]
        block = base64.b64decode(message["hdrs"])
        assert block == b"NATS/1.0\r\nOne: 1\r\nTwo: 2\r\n\r\n"
        without = (await api.ok("STREAM.MSG.GET.S", {"seq": 1, "no_hdr": True}))["message"]
        assert "hdrs" not in without
        assert without["data"] == message["data"]

    async def test_empty_message(self, api: Api) -> None:
        await api.create_stream("S")
        await api.publish("s")
        message = (await api.ok("STREAM.MSG.GET.S", {"seq": 1}))["message"]
        assert set(message) == {"subject", "seq", "time"}


class TestDelete:
    @STORAGE
    @pytest.mark.parametrize("no_erase", [False, True])
    async def test_deleted(self, api: Api, storage: str, no_erase: bool) -> None:
        await orders(api, storage)
        await api.ok("STREAM.MSG.DELETE.S", {"seq": 2, "no_erase": no_erase})
        await api.fails("STREAM.MSG.GET.S", 10037, {"seq": 2})
        for sequence in (2, 99):
            response = await api.request("STREAM.MSG.DELETE.S", {"seq": sequence})
            # nats-server: "sequence 99 not found", but "stream store EOF" for a file stream
            assert response["error"]["err_code"] in (10043, 10057)
        state = await api.stream_state("S", subjects_filter=">")
        assert state["messages"] == 5
        assert state["subjects"] == {"s.a": 3, "s.b": 2}

    async def test_ends_of_the_stream(self, api: Api) -> None:
        """The first sequence moves forward; the last never moves back."""
        await orders(api)
        await api.ok("STREAM.MSG.DELETE.S", {"seq": 1})
        await api.ok("STREAM.MSG.DELETE.S", {"seq": 6})
        state = await api.stream_state("S", deleted_details=True)
        assert (state["first_seq"], state["last_seq"], state["messages"]) == (2, 6, 4)
        assert (await api.publish("s.a"))["seq"] == 7
        assert await get(api, last_by_subj="s.b") == (4, "s.b", b"4")

    async def test_all_one_by_one(self, api: Api) -> None:
        await orders(api)
        for sequence in (3, 1, 6, 2, 5, 4):
            await api.ok("STREAM.MSG.DELETE.S", {"seq": sequence})
        state = await api.stream_state("S")
        assert (state["messages"], state["first_seq"], state["last_seq"]) == (0, 7, 6)
        assert state["bytes"] == 0

    async def test_denied(self, api: Api) -> None:
        await api.create_stream("S", deny_delete=True)
        await api.publish("s")
        text = await api.fails("STREAM.MSG.DELETE.S", 10057, {"seq": 1})
        assert text == "message delete not permitted"

    async def test_bad_requests(self, api: Api) -> None:
        await orders(api)
        await api.fails("STREAM.MSG.DELETE.S", 10003, b"")
        await api.fails("STREAM.MSG.DELETE.S", 10025, b'{"seq":')
        await api.fails("STREAM.MSG.DELETE.T", 10059, {"seq": 1})

    async def test_erased_for_good(self, start_jetstream: StartJetStream, connect: Connect) -> None:
        api = Api(await connect(await start_jetstream()))
        await orders(api, "file")
        await api.ok("STREAM.MSG.DELETE.S", {"seq": 2})
        api = Api(await connect(await start_jetstream()))
        await api.fails("STREAM.MSG.GET.S", 10037, {"seq": 2})
        assert await get(api, seq=3) == (3, "s.a", b"3")


class TestPurge:
    @pytest.mark.parametrize(
        ("request_", "purged", "left"),
        [
            ({}, 6, []),
            ({"filter": "s.a"}, 3, [2, 4, 6]),
            ({"filter": "s.*"}, 6, []),
            ({"filter": "t"}, 0, [1, 2, 3, 4, 5, 6]),
            ({"seq": 4}, 3, [4, 5, 6]),
            ({"seq": 1}, 0, [1, 2, 3, 4, 5, 6]),
            ({"keep": 2}, 4, [5, 6]),
            ({"keep": 100}, 0, [1, 2, 3, 4, 5, 6]),
            ({"filter": "s.a", "seq": 4}, 2, [2, 4, 5, 6]),
            ({"filter": "s.b", "keep": 1}, 2, [1, 3, 5, 6]),
            ({"filter": "s.*", "keep": 1}, 5, [6]),
        ],
    )
    @STORAGE
    async def test_what_goes(
        self, api: Api, storage: str, request_: dict[str, Any], purged: int, left: list[int]
    ) -> None:
        await orders(api, storage)
        response = await api.ok("STREAM.PURGE.S", request_ or b"")
        assert (response["success"], response["purged"]) == (True, purged)
        found = [
            sequence
            for sequence in range(1, 7)
            if "error" not in await api.request("STREAM.MSG.GET.S", {"seq": sequence})
        ]
        assert found == left
        state = await api.stream_state("S")
        assert (state["messages"], state["last_seq"]) == (len(left), 6)
        assert state["first_seq"] == (left[0] if left else 7)

    async def test_empty_stream(self, api: Api) -> None:
        await api.create_stream("S")
        assert (await api.ok("STREAM.PURGE.S"))["purged"] == 0
        assert (await api.stream_state("S"))["first_seq"] in (0, 1)

    async def test_beyond_the_end(self, api: Api) -> None:
        """A purge up to a sequence beyond the end moves the stream there."""
        await orders(api)
        await api.ok("STREAM.PURGE.S", {"seq": 100})
        state = await api.stream_state("S")
        assert (state["messages"], state["first_seq"], state["last_seq"]) == (0, 100, 99)
        assert (await api.publish("s.a"))["seq"] == 100

    async def test_bad_requests(self, api: Api) -> None:
        await orders(api)
        await api.fails("STREAM.PURGE.S", 10003, {"seq": 2, "keep": 1})
        await api.fails("STREAM.PURGE.S", 10025, b"[]")
        await api.fails("STREAM.PURGE.T", 10059)
        assert (await api.stream_state("S"))["messages"] == 6

    async def test_denied(self, api: Api) -> None:
        await api.create_stream("S", deny_purge=True)
        await api.publish("s")
        assert await api.fails("STREAM.PURGE.S", 10110) == "stream purge not permitted"

    async def test_survives(self, start_jetstream: StartJetStream, connect: Connect) -> None:
        api = Api(await connect(await start_jetstream()))
        await orders(api, "file")
        await api.ok("STREAM.PURGE.S", {"filter": "s.a"})
        before = await api.stream_state("S", deleted_details=True, subjects_filter=">")
        api = Api(await connect(await start_jetstream()))
        assert before == await api.stream_state("S", deleted_details=True, subjects_filter=">")
        await api.ok("STREAM.PURGE.S")
        api = Api(await connect(await start_jetstream()))
        state = await api.stream_state("S")
        assert (state["messages"], state["first_seq"], state["last_seq"]) == (0, 7, 6)
        assert (await api.publish("s.a"))["seq"] == 7


class TestDirectGet:
    """One reply: a plain message with the stream's data in headers (ADR-31)."""

    async def direct(self, api: Api, body: Any = b"", subject: str = "S") -> tuple[str, bytes]:
        reply = await api.raw(f"DIRECT.GET.{subject}", body)
        headers = reply.headers or {}
        if "Status" in headers:
            return headers["Status"], headers.get("Description", "").encode()
        return headers["Nats-Sequence"], reply.data

    @STORAGE
    async def test_every_way(self, api: Api, storage: str) -> None:
        await orders(api, storage)
        assert await self.direct(api, {"seq": 3}) == ("3", b"3")
        assert await self.direct(api, {"last_by_subj": "s.a"}) == ("5", b"5")
        assert await self.direct(api, subject="S.s.b") == ("6", b"6")
        assert await self.direct(api, {"next_by_subj": "s.b", "seq": 3}) == ("4", b"4")
        assert await self.direct(api, {"next_by_subj": "s.a"}) == ("1", b"1")

    async def test_what_is_said_of_it(self, api: Api) -> None:
        await api.create_stream("S", allow_direct=True)
        await api.publish("s", b"x", Mine="1")
        reply = await api.raw("DIRECT.GET.S", {"seq": 1})
        stored = (await api.ok("STREAM.MSG.GET.S", {"seq": 1}))["message"]
        assert reply.headers == {
            "Mine": "1",
            "Nats-Stream": "S",
            "Nats-Subject": "s",
            "Nats-Sequence": "1",
            "Nats-Time-Stamp": stored["time"],
        }

    async def test_statuses(self, api: Api) -> None:
        await orders(api)
        assert await self.direct(api, {"seq": 7}) == ("404", b"Message Not Found")
        assert await self.direct(api, subject="S.s.c") == ("404", b"Message Not Found")
        assert await self.direct(api) == ("408", b"Empty Request")
        assert await self.direct(api, {}) == ("408", b"Empty Request")
        assert await self.direct(api, b"{") == ("408", b"Malformed Request")
        bad = {"seq": 1, "last_by_subj": "s.a"}
        assert await self.direct(api, bad) == ("408", b"Bad Request")
        too_high = await api.raw("DIRECT.GET.S", {"seq": 1}, {"Nats-Required-Api-Level": "99"})
        assert (too_high.headers or {})["Status"] == "412"

    async def test_only_where_allowed(self, api: Api) -> None:
        await api.create_stream("S", subjects=["s.>"])
        with pytest.raises(Exception, match="no responders"):
            await api.raw("DIRECT.GET.S", {"seq": 1})
        await api.update_stream("S", subjects=["s.>"], allow_direct=True)
        assert await self.direct(api, {"seq": 1}) == ("404", b"Message Not Found")
        await api.update_stream("S", subjects=["s.>"], allow_direct=False)
        with pytest.raises(Exception, match="no responders"):
            await api.raw("DIRECT.GET.S", {"seq": 1})

    async def test_many_at_once(self, api: Api) -> None:
        await api.create_stream("S", subjects=["s.*"], allow_direct=True, storage="file")
        for number in range(100):
            await api.publish(f"s.{number}", b"%d" % number)
        found = await asyncio.gather(
            *(self.direct(api, subject=f"S.s.{number}") for number in range(100))
        )
        assert found == [(str(number + 1), b"%d" % number) for number in range(100)]

    async def test_without_headers(self, api: Api) -> None:
        """`no_hdr` omits the headers of the message, and those of the server."""
        await api.create_stream("S", allow_direct=True)
        await api.publish("s", b"x", Mine="1")
        reply = await api.raw("DIRECT.GET.S", {"seq": 1, "no_hdr": True})
        assert (reply.headers or {}, reply.data) == ({}, b"x")
