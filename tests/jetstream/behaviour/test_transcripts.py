"""Transcripts of JetStream over a raw socket, recorded from nats-server 2.14.5.

They fix texts and field orders that client libraries compare. Times, and lengths that depend on
times, may differ.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.clients.transcript import Player, read_transcript
from tests.jetstream.behaviour.conftest import AnyTarget

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
async def test_as_written(path: Path, server: AnyTarget) -> None:
    await asyncio.to_thread(Player(server.address).play, read_transcript(path))
