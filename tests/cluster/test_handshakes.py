"""Handshakes of routes, as transcripts: each file states the rule that it proves."""

import logging
from pathlib import Path

import pytest

from tests.cluster.transcript import play, read, transcripts

pytestmark = pytest.mark.both_loops


@pytest.mark.parametrize("path", transcripts(), ids=lambda path: path.stem)
async def test_a_handshake(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "natsd")
    await play(read(path), caplog)
