"""Clusters whose accounts come from JWTs: a server learns of interest before it has the account."""

import contextlib
from typing import Any

import pytest

from natsd import Server
from tests.cluster.mesh import inbox, member, meshed
from tests.server.operators import OPERATOR_JWT, SYSTEM, A, connected
from tests.waiting import eventually_within


def settings() -> dict[str, Any]:
    return {
        "operators": [OPERATOR_JWT],
        "resolver": "MEM",
        "resolver_preload": {each.name: each.jwt for each in (SYSTEM, A)},
    }


@pytest.mark.parametrize("pool_size", [-1, 3])
async def test_an_account_is_known_by_its_peers_before_its_first_client(pool_size: int) -> None:
    block = {"pool_size": pool_size}
    async with contextlib.AsyncExitStack() as stack:
        first: Server = await stack.enter_async_context(member("A", (), block, **settings()))
        second = await stack.enter_async_context(member("B", [first], block, **settings()))
        await meshed(first, second)
        a = await stack.enter_async_context(connected(first, A.user()))
        got = await inbox(a, "foo")
        assert A.name not in second.accounts
        b = await stack.enter_async_context(connected(second, A.user()))
        await eventually_within(lambda: second.accounts[A.name].sublist.has_interest("foo"))
        await b.publish("foo", b"1")
        await got.filled(1)
