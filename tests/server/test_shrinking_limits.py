"""An account's JWT with lower limits, pushed while its clients publish: no acknowledged loss.

nats-server's `updateAccountClaimsWithRefresh`: clients beyond a limit are closed, newest first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import nats.js.errors
import pytest
from nats.aio.client import Client

from natsd import Server
from natsd.core.reasons import ClosedReason
from natsd.testing.jwts import AccountKeys
from tests.server.operators import OPERATOR, OPERATOR_JWT, SYSTEM, A, connected, push
from tests.waiting import eventually_within

PAYLOAD: Final = b"x" * 1000
STREAMS: Final = {"disk_storage": 64 << 20, "mem_storage": 0, "streams": -1, "consumer": -1}
ACCOUNT_LIMIT_EXCEEDED: Final = 10002
STORAGE_EXCEEDED: Final = 10047


def with_limits(**limits: int) -> AccountKeys:
    return OPERATOR.account("A", limits={**STREAMS, **limits})


@asynccontextmanager
async def served(tmp_path: Path) -> AsyncIterator[tuple[Server, Client]]:
    """Serve the account with its first limits; yield the server and a client of the operator."""
    settings: dict[str, Any] = {
        "operators": [OPERATOR_JWT],
        "resolver": {"type": "full", "dir": str(tmp_path / "jwt")},
        "resolver_preload": {SYSTEM.name: SYSTEM.jwt},
        "jetstream": True,
        "store_dir": tmp_path / "store",
    }
    async with Server(host="127.0.0.1", port=-1, **settings) as server:
        async with connected(server, SYSTEM.user()) as operator:
            await push(operator, with_limits())
            yield server, operator


class Publisher:
    """Publishes to a stream as fast as it is acknowledged, and notes what was and what was not."""

    def __init__(self, client: Client) -> None:
        self._jetstream = client.jetstream()
        self.acknowledged: list[int] = []
        self.refused: list[int | None] = []
        self._is_over = False
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End; a cancelled request of the client may return its answer nevertheless."""
        self._is_over = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while not self._is_over:
            try:
                ack = await self._jetstream.publish("s", PAYLOAD, timeout=20)
                self.acknowledged.append(ack.seq)
            except nats.js.errors.APIError as error:
                self.refused.append(error.err_code)
                await asyncio.sleep(0.001)

    async def more(self, notes: list[Any]) -> None:
        """Wait until something is noted in a list."""
        before = len(notes)
        await eventually_within(lambda: len(notes) > before + 2)


async def test_storage_shrinks_below_what_is_used(tmp_path: Path) -> None:
    """Publishes are refused with the account's error, until there is room again."""
    async with served(tmp_path) as (server, operator), connected(server, A.user()) as client:
        jetstream = client.jetstream()
        await jetstream.add_stream(name="S", subjects=["s"])
        publisher = Publisher(client)
        await eventually_within(lambda: len(publisher.acknowledged) > 30)
        for _ in range(2):
            await push(operator, with_limits(disk_storage=10_000))
            await publisher.more(publisher.refused)
            with pytest.raises(nats.js.errors.APIError) as caught:
                await jetstream.add_stream(name="T", subjects=["t"], max_bytes=20_000)
            assert caught.value.err_code == STORAGE_EXCEEDED
            stored = (await jetstream.stream_info("S")).state
            assert stored.messages >= len(publisher.acknowledged)
            await push(operator, with_limits())
            await publisher.more(publisher.acknowledged)
        await publisher.stop()
        assert set(publisher.refused) == {ACCOUNT_LIMIT_EXCEEDED}
        stored = (await jetstream.stream_info("S")).state
        assert stored.messages == stored.last_seq >= publisher.acknowledged[-1]
        assert (await jetstream.get_msg("S", publisher.acknowledged[-1])).data == PAYLOAD


async def test_clients_beyond_the_limits_are_closed_newest_first(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        server, operator = await stack.enter_async_context(served(tmp_path))
        first, *others = [
            await stack.enter_async_context(connected(server, A.user())) for _ in range(5)
        ]
        await first.jetstream().add_stream(name="S", subjects=["s"])
        publisher = Publisher(first)
        await publisher.more(publisher.acknowledged)

        cids = [client.client_id for client in others]
        await push(operator, with_limits(conn=3))
        await eventually_within(lambda: others[3].is_closed and others[2].is_closed)
        await eventually_within(lambda: len(server.closed_clients) == 2)
        assert {(each.cid, each.reason) for each in server.closed_clients} == {
            (cid, ClosedReason.MAXIMUM_ACCOUNT_CONNECTIONS_EXCEEDED.value) for cid in cids[2:]
        }
        await others[1].flush()

        for number in range(6):
            await others[1].subscribe(f"many.{number}")
        await others[1].flush()
        await push(operator, with_limits(subs=4))
        await eventually_within(lambda: others[1].is_closed)
        await others[0].flush()

        await push(operator, with_limits(payload=len(PAYLOAD)))
        await others[0].publish("elsewhere", PAYLOAD + b"x")
        await eventually_within(lambda: others[0].is_closed)

        await publisher.more(publisher.acknowledged)
        await publisher.stop()
        assert not publisher.refused
        state = (await first.jetstream().stream_info("S")).state
        assert state.messages >= len(publisher.acknowledged) == publisher.acknowledged[-1]
