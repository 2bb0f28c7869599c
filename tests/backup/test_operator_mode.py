"""Backups of a server in operator mode: the JWTs of its accounts belong to them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from natsd import Server
from natsd.cli import main
from tests.server.operators import OPERATOR, OPERATOR_JWT, SYSTEM, connected, push

A = OPERATOR.account("A", limits={"disk_storage": 1 << 30, "streams": 10, "consumer": 10})


def server_in(directory: Path) -> Server:
    return Server(
        host="127.0.0.1",
        port=-1,
        operators=[OPERATOR_JWT],
        resolver={"type": "full", "dir": str(directory / "jwts")},
        resolver_preload={SYSTEM.name: SYSTEM.jwt},
        jetstream={"store_dir": str(directory)},
    )


async def test_streams_and_jwts_of_accounts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    creds = tmp_path / "system.creds"
    creds.write_text(SYSTEM.user().creds)
    backups, out = tmp_path / "backups", tmp_path / "out"
    for name in "ab":
        (tmp_path / name / "jwts").mkdir(parents=True)
    login = ["--all-accounts", "--creds", str(creds)]
    async with server_in(tmp_path / "a") as server:
        async with connected(server, SYSTEM.user()) as operator:
            await push(operator, A)
        async with connected(server, A.user()) as client:
            await client.jetstream().add_stream(name="S", subjects=["s"])
            await client.jetstream().publish("s", b"kept")
        arguments = ["backup", str(backups), *login, "-s", server.client_url]
        assert await asyncio.to_thread(main, arguments) == 0
    assert main(["restore", str(backups), "--files", str(out)]) == 0
    assert (out / "jwt" / f"{A.name}.jwt").read_text() == A.jwt
    async with server_in(tmp_path / "b") as server:
        restore = ["restore", str(backups), *login, "-s", server.client_url]
        capsys.readouterr()
        assert await asyncio.to_thread(main, restore) == 1  # the account is not known yet
        assert "not enabled for account" in capsys.readouterr().out
        async with connected(server, SYSTEM.user()) as operator:
            await push(operator, A)
        async with connected(server, A.user()) as client:
            assert await asyncio.to_thread(main, restore) == 0
            assert (await client.jetstream().get_msg("S", 1)).data == b"kept"
