"""A change of which a part fails is undone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from natsd.jetstream.errors import ApiError
from natsd.jetstream.schedules.scheduled_messages import ScheduledMessages
from natsd.jetstream.stream.stream import Stream
from natsd.store.errors import StoreError
from tests.jetstream.serving import account_of, create, publish, serving, update
from tests.jetstream.snapshot.test_restoring import restore, take


async def fail(*_given: Any, **_named: Any) -> None:
    raise StoreError


async def test_schedules_that_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream is unchanged in memory and on disk, and can be changed later."""
    async with serving(tmp_path) as jetstream:
        stream = await create(jetstream, "S", subjects=["s"])
        with monkeypatch.context() as failing:
            failing.setattr(ScheduledMessages, "open", fail)
            with pytest.raises(ApiError):
                await update(stream, allow_msg_schedules=True, subjects=["s", "t"])
        assert not stream.config.allow_msg_schedules
        assert json.loads((await publish_later(jetstream))["error"]) == 10188
    async with serving(tmp_path) as jetstream:
        stream = account_of(jetstream).stream("S")
        assert not stream.config.allow_msg_schedules
        await update(stream, allow_msg_schedules=True)
        assert "error" not in await publish_later(jetstream)


async def publish_later(jetstream: Any) -> dict[str, Any]:
    answer = await publish(jetstream, "s", b"x", b"NATS/1.0\r\nNats-Delay: 1h\r\n\r\n")
    if "error" in answer:
        answer["error"] = str(answer["error"]["err_code"])
    return answer


async def test_nothing_is_left_of_a_stream_whose_schedules_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as jetstream:
        with monkeypatch.context() as failing:
            failing.setattr(ScheduledMessages, "open", fail)
            with pytest.raises(ApiError):
                await create(jetstream, "S", subjects=["s"], allow_msg_schedules=True)
        assert not account_of(jetstream).files.stream("S").exists()
        await create(jetstream, "S", subjects=["s"], allow_msg_schedules=True)
        assert "error" not in await publish_later(jetstream)


async def test_a_restore_that_cannot_keep_to_the_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No stream, files or usage are left, and the stream can be restored later."""
    async with serving(tmp_path) as jetstream:
        stream = await create(jetstream, "S", subjects=["s"])
        await publish(jetstream, "s", b"x")
        snapshot = await take(jetstream)
        account = account_of(jetstream)
        await account.delete_stream("S")
        with monkeypatch.context() as failing:
            failing.setattr(Stream, "keep_to_limits", fail)
            assert (await restore(jetstream, *snapshot))["error"]["err_code"] == 10062
        assert "S" not in account.streams
        assert not stream.directory.exists()
        assert account.info().storage == 0
        assert "error" not in await restore(jetstream, *snapshot)
        assert account.info().storage > 0
