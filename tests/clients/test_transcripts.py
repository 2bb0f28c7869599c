"""Each transcript holds as it is written, and however TCP cuts what the clients send."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.target import GO_SERVER, Target
from tests.clients.transcript import Player, cuts, read_transcript
from tests.clients.wire import Wire

pytestmark = pytest.mark.served_every_way

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.fixture(params=TRANSCRIPTS, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    chosen: Path = request.param
    return chosen


def test_as_written(path: Path, shared_server: Callable[..., Target]) -> None:
    transcript = read_transcript(path)
    server = shared_server(**transcript.options)
    Player(server.address).play(transcript)


def test_cut_anywhere(path: Path, shared_server: Callable[..., Target]) -> None:
    transcript = read_transcript(path)
    if reason := transcript.whole or (GO_SERVER and transcript.go_whole):
        pytest.skip(reason)
    server = shared_server(**transcript.options)
    with Wire(server.address) as metronome:
        metronome.send(b"CONNECT " + json.dumps(credentials(server)).encode() + b"\r\n")
        metronome.sync()
        player = Player(server.address, metronome)
        for name, cut in cuts(transcript.sent_bytes):
            try:
                player.play(transcript, cut)
            except Exception as error:
                error.add_note(f"in {path.name}, {name}")
                raise


def credentials(server: Target) -> dict[str, object]:
    """Return the fields that CONNECT needs so that the client is authenticated."""
    options = server.options
    found = {"auth_token": "token", "user": "user", "pass": "password"}
    return {
        "verbose": False,
        **{name: options[option] for name, option in found.items() if option in options},
    }
