"""The files of a replica that the key does not open."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from natsd.jetstream.replicas.opening import may_be_incomplete, open_replica
from natsd.store.crypto.keys import KEY_FILE, OperatorKeys, create_key_file
from natsd.store.disk.real_disk import RealDisk
from natsd.store.errors import KeyWrong
from natsd.store.maintenance.check import context_of
from tests.jetstream.serving import ACCOUNT, account_of, create, publish, serving


async def test_they_stay_and_are_not_taken_for_damaged(tmp_path: Path) -> None:
    """Else a wrong key on all servers would make each of them remove its replica."""
    async with serving(tmp_path, key="a key") as jetstream:
        stream = await create(jetstream, "S", subjects=["s"])
        await publish(jetstream, "s", b"x")
        config, created_ns = stream.config, stream.created_ns
    root = tmp_path / "jetstream"
    messages = root / ACCOUNT / "streams" / "S" / "msgs"
    create_key_file(
        RealDisk(),
        messages / KEY_FILE,
        context_of(root, messages),
        OperatorKeys(b"another key"),
        os.urandom,
    )
    before = {path: path.read_bytes() for path in messages.iterdir()}
    async with serving(tmp_path, key="a key") as jetstream:
        account = account_of(jetstream)
        with pytest.raises(KeyWrong):
            await open_replica(account, config, created_ns, is_new=False)
        assert not may_be_incomplete(RealDisk(), account.files, "S")
    assert {path: path.read_bytes() for path in messages.iterdir()} == before
