"""`natsd` as a command: what it prints, where, and its exit code. No server is started here."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from natsd import __version__
from natsd.cli import main
from natsd.cli.flags import FLAGS
from natsd.cli.signals import SIGNALS, SignalError, send_signal


@pytest.mark.parametrize("argument", ["-v", "--version", "version", "VERSION"])
def test_version_shows_the_nats_level_first(
    argument: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([argument]) == 0
    assert capsys.readouterr().out == f"nats-server: v2.14.5\nnatsd: v{__version__}\n"


def test_under_the_name_of_nats_server_it_shows_the_nats_level_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/nats-server", "-v"])
    assert main() == 0
    assert capsys.readouterr().out == "nats-server: v2.14.5\n"


@pytest.mark.parametrize("argument", ["-h", "-help", "help"])
def test_help_names_every_flag(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([argument]) == 0
    shown = set(re.findall(r"(?<![\w-])--?(\w+)", capsys.readouterr().out))
    assert FLAGS.keys() <= shown


REFUSED = {
    ("-foo",): "natsd: flag provided but not defined: -foo (natsd -h shows the flags)",
    ("serve",): 'natsd: unrecognized command: "serve" (natsd -h shows the commands)',
    ("-p", "70000"): "natsd: port must be -1 to 65535, not 70000",
    ("-n", "a b"): "natsd: server name cannot contain spaces",
    ("-sl", "fly"): 'natsd: unknown signal "fly"',
    ("-sl", "quit=abc"): "natsd: invalid pid: abc",
    ("-sl", "quit=1=2"): "natsd: invalid signal parameters: [2]",
    ("-sl", "quit=99999999"): 'natsd: signal "quit" 99999999: no such process',
    ("-c", "x"): "natsd: open x: no such file or directory",
    ("-t",): "natsd: must specify [-c, --config] option to check configuration file syntax",
    ("-js", "-cluster", "nats://h:1"): "natsd: jetstream cluster requires `server_name`",
    ("-routes", "nats://h:1"): "natsd: solicited routes require cluster capabilities",
    ("-profile", "x"): 'natsd: invalid value "x" for flag -profile: parse error',
    ("-tls",): "natsd: TLS Server certificate must be present and valid",
}


@pytest.mark.parametrize("arguments", REFUSED)
def test_a_mistake_is_one_line_and_exit_code_1(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(REFUSED[arguments])
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]], ids=["long", "short"])
def test_a_reader_that_ends_early_gets_no_traceback(arguments: list[str]) -> None:
    """`natsd … | head` and a pager that is left."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "natsd", *arguments],
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert done.returncode == 1
    assert done.stderr == b""


def test_python_m_natsd() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "natsd", "-v"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("nats-server: v2.14.5\n")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that dies of any signal sent to it."""
    code = (
        "import signal, time\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored\n"
        "print(flush=True)\n"
        "time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize("command", [name for name in SIGNALS if name != "quit"])
def test_a_signal_reaches_a_pid(command: str, sleeper: subprocess.Popen[bytes]) -> None:
    send_signal(f"{command}={sleeper.pid}")
    assert sleeper.wait(10) == -SIGNALS[command]


def test_a_signal_reaches_the_pid_in_a_file(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    pid_file = tmp_path / "natsd.pid"
    pid_file.write_text(str(sleeper.pid))
    send_signal(f"term={pid_file}")
    assert sleeper.wait(10) == -signal.SIGTERM


def test_a_signal_without_a_pid_needs_exactly_one_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
) -> None:
    pgrep = tmp_path / "pgrep"
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    pgrep.write_text("#!/bin/sh\necho 7; echo 8\n")
    pgrep.chmod(0o755)
    with pytest.raises(SignalError, match="multiple natsd processes running: 7 8"):
        send_signal("term")
    pgrep.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(SignalError, match="no natsd processes running"):
        send_signal("term")
    prefix = str(sleeper.pid)[:-1]
    pgrep.write_text(f"#!/bin/sh\necho {prefix}99999999; echo {sleeper.pid}\n")
    with pytest.raises(SignalError, match=f'^signal "term" {prefix}99999999: no such process$'):
        send_signal(f"term={prefix}*")
    assert sleeper.wait(10) == -signal.SIGTERM
