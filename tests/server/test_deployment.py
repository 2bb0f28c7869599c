"""The Dockerfile, the compose file and the unit of systemd fit the program that they start."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from natsd import Server
from natsd.cli.flags import read_command_line
from natsd.cli.signals import SIGNALS
from natsd.config.load import load_options
from natsd.config.options import Options, make_options
from natsd.core.durations import parse_duration
from tests.source.reading import ROOT
from tests.waiting import DEADLINE_S

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = (ROOT / "conf" / "compose.yaml").read_text(encoding="utf-8")
UNIT_FILE = ROOT / "conf" / "natsd.service"
UNIT = dict(
    line.split("=", 1)
    for line in UNIT_FILE.read_text(encoding="utf-8").splitlines()
    if "=" in line and not line.startswith("#")
)
EXPOSURE_MAX = 15
"""Tenths of what `systemd-analyze security` says: from 0, safe, to 100, unbounded."""


def of_image(name: str) -> list[str]:
    """The words of an instruction of the Dockerfile in its JSON form."""
    match = re.search(rf"^ *{name} (\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert match is not None
    words: list[str] = json.loads(match[1])
    return words


def instruction(name: str) -> str:
    """The last instruction of that name, in the image's own stage."""
    found = re.findall(rf"^{name} (.*)$", DOCKERFILE, re.MULTILINE)
    assert found
    text: str = found[-1]
    return text


def flags_of(words: list[str]) -> Options:
    line = read_command_line(words)
    assert not line.words
    line.settings.pop("config", None)
    return make_options(**line.settings)


# ---- the image


def test_the_image_starts_natsd_with_flags_that_there_are() -> None:
    program, *flags = of_image("ENTRYPOINT")
    assert program == "/usr/local/bin/natsd"
    options = flags_of([*flags, "-js"])
    assert str(options.store_dir) == instruction("VOLUME") == instruction("WORKDIR") == "/data"
    assert {str(options.port), str(options.http_port)} <= set(instruction("EXPOSE").split())


def test_the_image_runs_as_a_user_without_rights_and_moves_clients_when_it_stops() -> None:
    user, group = instruction("USER").split(":")
    assert user == group == "4222"
    assert f"--chown={user}:{group} /data /data" in DOCKERFILE
    assert signal.Signals[instruction("STOPSIGNAL")] == SIGNALS["ldm"]


def test_the_image_copies_what_there_is() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    for line in re.findall(r"^COPY ([^-].*)$", DOCKERFILE, re.MULTILINE):
        *sources, _target = line.split()
        for source in sources:
            assert (ROOT / source).exists()
            assert f"!{source}" in ignored
    assert "**/*.so" in ignored
    assert (ROOT / "natsd/monitor/dashboard/index.html").exists()
    assert "!natsd/monitor/dashboard/*.html" in ignored[ignored.index("natsd/**/*.html") :]


async def health(port: int) -> int:
    """The exit code of the image's health check."""
    program, *words = of_image("CMD")
    assert program == "/usr/local/bin/python3"
    assert words[-1].count("8222") == 1
    command = [sys.executable, *words[:-1], words[-1].replace("8222", str(port))]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    return await process.wait()


async def test_the_health_check_tells_a_server_that_is_well() -> None:
    async with Server(host="127.0.0.1", port=-1, http_port=-1) as server:
        port = server.http_port
        async with asyncio.timeout(DEADLINE_S):
            while await health(port) != 0:  # as Docker does, until monitoring has begun
                pass
    assert await health(port) == 1


def test_compose_waits_until_clients_have_moved() -> None:
    options = load_options(ROOT / "conf" / "compose.conf").options
    match = re.search(r"stop_grace_period: (\w+)", COMPOSE)
    assert match is not None
    assert options.lame_duck_duration < parse_duration(match[1])
    assert str(options.jetstream.store_dir) == instruction("VOLUME")


# ---- the unit


def test_the_unit_starts_natsd_with_flags_that_there_are() -> None:
    program, *flags = shlex.split(UNIT["ExecStart"])
    assert Path(program).name == "natsd"
    assert str(flags_of(flags).store_dir) == "${STATE_DIRECTORY}"
    assert UNIT["Type"] == "notify"


def test_the_unit_sends_natsds_signals_and_waits_for_a_lame_duck() -> None:
    assert signal.Signals[UNIT["KillSignal"]] == SIGNALS["ldm"]
    assert signal.Signals[UNIT["WatchdogSignal"]] == signal.SIGQUIT
    assert UNIT["ExecReload"] == f"/bin/kill -{SIGNALS['reload'].name[3:]} $MAINPID"
    assert timedelta(seconds=int(UNIT["TimeoutStopSec"][:-1])) > Options().lame_duck_duration


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "natsd.service"
    text = UNIT_FILE.read_text(encoding="utf-8")
    unit.write_text(text.replace("/opt/natsd/bin/natsd", sys.executable))
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_the_unit_is_hardened() -> None:
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}"]
    checked = subprocess.run([*command, UNIT_FILE], capture_output=True, text=True, check=False)
    if "Unknown" in checked.stderr or "unrecognized option" in checked.stderr:
        pytest.skip("this systemd-analyze cannot check a file")
    assert checked.returncode == 0, checked.stdout
