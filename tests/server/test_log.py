"""The log: lines as nats-server writes them, files that are rotated and reopened."""

import logging
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from natsd import Server
from natsd.config import make_options
from natsd.config.levels import TRACE
from natsd.server.log import DaemonLog, Line, LogError
from natsd.server.log_rotation import backup_name, backups_of
from tests.clients.wire import Wire
from tests.waiting import Eventually

OpenLog = Callable[..., logging.Handler]

logger = logging.getLogger("natsd.server")


@pytest.fixture
def opened() -> Iterator[OpenLog]:
    """Yield a function that opens logs; close them afterwards."""
    logs = []

    def open_with(**settings: object) -> DaemonLog:
        logs.append(DaemonLog(make_options(**settings)))
        return logs[-1]

    yield open_with
    for log in logs:
        log.close()


def test_a_line_is_nats_servers(opened: OpenLog, tmp_path: Path) -> None:
    opened(log_file=tmp_path / "log")
    logger.info("Server is %s", "ready")
    pattern = (
        rf"\[{os.getpid()}\] \d{{4}}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{{6}} \[INF\] Server is ready\n"
    )
    assert re.fullmatch(pattern, (tmp_path / "log").read_text())


def test_each_level_has_its_label(opened: OpenLog, tmp_path: Path) -> None:
    opened(log_file=tmp_path / "log", debug=True, trace=True, logtime=False)
    for level in (logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL, logging.DEBUG):
        logger.log(level, "x")
    logger.log(TRACE, "x")
    lines = (tmp_path / "log").read_text().splitlines()
    labels = ("INF", "WRN", "ERR", "FTL", "DBG", "TRC")
    assert lines == [f"[{os.getpid()}] [{label}] x" for label in labels]


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({}, ["INF"]),
        ({"debug": True}, ["INF", "DBG"]),
        ({"trace": True}, ["INF", "TRC"]),
        ({"debug": True, "trace": True}, ["INF", "DBG", "TRC"]),
    ],
)
def test_debug_and_trace_are_independent(
    opened: OpenLog, tmp_path: Path, settings: dict[str, bool], shown: list[str]
) -> None:
    opened(log_file=tmp_path / "log", **settings)
    for level in (logging.INFO, logging.DEBUG, TRACE):
        logger.log(level, "x")
    assert re.findall(r"\[([A-Z]{3})\]", (tmp_path / "log").read_text()) == shown


def test_times_in_utc() -> None:
    record = logging.makeLogRecord({"created": 1136214245.25, "levelno": 20, "msg": "x"})
    line = Line(logtime=True, utc=True, color=False).format(record)
    assert line == f"[{os.getpid()}] 2006/01/02 15:04:05.250000 [INF] x"


def test_colours_on_a_terminal_are_gos() -> None:
    record = logging.makeLogRecord({"levelno": logging.WARNING, "msg": "x"})
    line = Line(logtime=False, utc=False, color=True).format(record)
    assert line == f"[{os.getpid()}] [\x1b[0;93mWRN\x1b[0m] x"


def test_standard_error_without_colour_when_it_is_no_terminal(
    opened: OpenLog, capfd: pytest.CaptureFixture[str]
) -> None:
    opened(logtime=False)
    logger.warning("x")
    assert capfd.readouterr().err == f"[{os.getpid()}] [WRN] x\n"


def test_a_log_file_is_appended_to_and_private(opened: OpenLog, tmp_path: Path) -> None:
    file = tmp_path / "log"
    old_umask = os.umask(0)
    opened(log_file=file, logtime=False)
    os.umask(old_umask)
    assert file.stat().st_mode & 0o777 == 0o640
    logger.info("one")
    file.write_text("before\n")
    logger.info("two")
    assert file.read_text() == f"before\n[{os.getpid()}] [INF] two\n"


def test_an_unwritable_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "log"
    with pytest.raises(LogError, match=f"open {path}: no such file or directory$"):
        DaemonLog(make_options(log_file=path))


def test_a_full_file_is_set_aside(opened: OpenLog, tmp_path: Path) -> None:
    file = tmp_path / "log"
    opened(log_file=file, log_size_limit=1000, logtime=False)
    logger.info("x" * 1000)
    logger.info("next")
    (backup,) = backups_of(file)
    assert re.fullmatch(r"log\.\d{4}(\.\d\d){5}\.\d{9}", backup.name)
    assert backup.read_text().endswith("x\n")
    pid = os.getpid()
    assert file.read_text() == (
        f'[{pid}] [INF] Rotated log, backup saved as "{backup}"\n[{pid}] [INF] next\n'
    )


def test_only_so_many_files_are_kept(opened: OpenLog, tmp_path: Path) -> None:
    file = tmp_path / "log"
    unrelated = tmp_path / "log.2026.notes"
    unrelated.write_text("")
    opened(log_file=file, log_size_limit=300, logfile_max_num=3, logtime=False)
    for number in range(6):
        logger.info("%d %s", number, "x" * 300)
    kept = [backup.read_text() for backup in backups_of(file)]
    assert len(kept) == 2
    assert f"[INF] 5 {'x' * 300}" in kept[-1]
    assert 'Purged log file "log.' in file.read_text()
    assert unrelated.exists()


def test_a_file_over_the_limit_is_set_aside_at_once(opened: OpenLog, tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("x" * 200)
    opened(log_file=file, log_size_limit=100, logtime=False)
    (backup,) = backups_of(file)
    assert "Rotating logfile..." in backup.read_text()


def test_a_directory_that_forbids_rotation_does_not_stop_the_log(
    opened: OpenLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "log"
    opened(log_file=file, log_size_limit=50, logtime=False)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", refuse)
    logger.info("x" * 60)
    assert "Unable to rotate the log file (Permission denied)" in file.read_text()
    logger.info("still here")
    assert "still here" in file.read_text()


def test_reopen_follows_a_renamed_file(opened: OpenLog, tmp_path: Path) -> None:
    file = tmp_path / "log"
    handler = opened(log_file=file, logtime=False)
    logger.info("one")
    file.rename(tmp_path / "log.1")
    handler.reopen()
    logger.info("two")
    assert "one" in (tmp_path / "log.1").read_text()
    pid = os.getpid()
    assert file.read_text() == f"[{pid}] [INF] File log re-opened\n[{pid}] [INF] two\n"


def test_reopen_of_what_is_no_file_says_so(
    opened: OpenLog, capfd: pytest.CaptureFixture[str]
) -> None:
    opened().reopen()
    assert "File log re-open ignored, not a file logger" in capfd.readouterr().err


def test_a_failed_reopen_keeps_the_old_file(opened: OpenLog, tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    directory.mkdir()
    handler = opened(log_file=directory / "log")
    directory.rename(tmp_path / "moved")
    handler.reopen()
    assert "File log re-open failed" in (tmp_path / "moved" / "log").read_text()


def test_a_backups_name_sorts_by_age() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
    assert backup_name(Path("/d/log"), moment) == Path("/d/log.2026.01.02.03.04.05.000678000")


HOSTILE = [
    ("a\n[1] [INF] forged", r"a\n[1] [INF] forged"),
    ("\x1b[2J\r\x07\x00\x7f", r"\x1b[2J\r\x07\x00\x7f"),
    ("\x85 \u2028 \u2029 \u202e \udc80", r"\x85 \u2028 \u2029 \u202e \udc80"),
    ("tab\there", r"tab\there"),
    ("plain ü 漢 \u00a0 C:\\x", "plain ü 漢 \u00a0 C:\\x"),
]


@pytest.mark.parametrize(("text", "shown"), HOSTILE)
def test_a_text_from_outside_stays_one_line_without_control_characters(
    opened: OpenLog, tmp_path: Path, text: str, shown: str
) -> None:
    opened(log_file=tmp_path / "log", logtime=False)
    logger.info("client %s", text)
    expected = f"[{os.getpid()}] [INF] client {shown}\n"
    assert (tmp_path / "log").read_text(encoding="utf-8") == expected


def test_what_an_exception_adds_looks_like_no_line_of_its_own(
    opened: OpenLog, tmp_path: Path
) -> None:
    opened(log_file=tmp_path / "log", logtime=False)
    try:
        raise ValueError("x\n[1] [INF] forged\x1b[0m")
    except ValueError:
        logger.exception("failed")
    first, *added = (tmp_path / "log").read_text().splitlines()
    assert first == f"[{os.getpid()}] [ERR] failed"
    assert all(line.startswith("    ") and line.isprintable() for line in added)
    assert any("forged" in line for line in added)


def test_what_clients_say_of_themselves_stays_one_line(opened: OpenLog, tmp_path: Path) -> None:
    """A client's name, user and subject cannot forge a line of the log."""
    opened(log_file=tmp_path / "log", logtime=False, debug=True, trace=True)
    lie = "x\\n[1] [INF] forged\\u001b[2J\\u0085"
    connect = f'CONNECT {{"verbose":false,"name":"{lie}","lang":"{lie}","version":"{lie}"}}'
    with Server(host="127.0.0.1", port=-1, thread=True, trace=True) as server:
        with Wire(("127.0.0.1", server.client_port)) as wire:
            wire.send(connect.encode() + b"\r\n")
            wire.send(b"SUB \x1b[2J\x07 1\r\nPUB a\x85b\xff 3\r\n\x1b\x07\n\r\n")
            wire.send(b"-ERR '\x1b[31m'\r\n")
            wire.read_until_closed()
    text = (tmp_path / "log").read_bytes().decode()
    lines = text.split("\n")
    assert len(lines) > 5
    assert all(line.isprintable() for line in lines)
    assert all(line.startswith(f"[{os.getpid()}] [") for line in lines[:-1])


FOLLOWED_BY_PING = b"\r\nPING\r\n"


@pytest.mark.parametrize(
    "line",
    [
        b'CONNECT {"verbose":false,"user":"derek","pass":"s3cr3t"}',
        b'connect\t { "user" : "derek" , "PASS" :\t"s3cr3t" , "Auth_Token":"s3cr3t"}',
        rb'CONNECT {"p\u0061ss":"s3cr3t"}',
        rb'CONNECT {"pass":"\u0073\"s3cr3t"}',
        b'CONNECT {"pass":"a","pass":"s3cr3t"}',
        b'CONNECT {"pass":{"a":"s3cr3t"}}',
        b'CONNECT {"pass":["s3cr3t"]}',
        b'CONNECT {"pass":s3cr3t}',
        b'CONNECT {"pass":"s3cr3t',
        b"CONNECT {'pass':'s3cr3t'}",
        b'CONNECT "pass":"s3cr3t"',
        b"CONNECT s3cr3t",
        b'CONNECT [{"pass":"s3cr3t"}]',
        b'CONNECT {"password":"s3cr3t"}',
        b'CONNECT {"proxy_sig":"s3cr3t","sig":"s3cr3t","jwt":"s3cr3t"}',
        b'CONNECT {"pass":"s3cr3t"} {"pass":"s3cr3t"}',
        b'CONNECT {"name":{"pass":"s3cr3t"}}',
        b'CONNECT {"pass":"s3cr3t","name":"' + b"x" * 5000,
        b' CONNECT {"pass":"s3cr3t"}',
        b'KONNECT {"pass":"s3cr3t"}',
        b'CONNECT{"pass":"s3cr3t"}',
    ],
)
def test_the_log_shows_no_secret_of_a_connect(opened: OpenLog, tmp_path: Path, line: bytes) -> None:
    """However the CONNECT is spelled, and also if it is refused."""
    opened(log_file=tmp_path / "log", logtime=False, debug=True, trace=True)
    login = {"user": "derek", "password": "right"}
    with (
        Server(host="127.0.0.1", port=-1, thread=True, trace=True, authorization=login) as server,
        Wire(("127.0.0.1", server.client_port)) as wire,
    ):
        wire.send(line + FOLLOWED_BY_PING)
        wire.read_until_closed()
    text = (tmp_path / "log").read_text()
    assert "Client connection closed" in text
    assert "3cr3t" not in text


def test_the_log_shows_what_a_connect_says_of_the_client(opened: OpenLog, tmp_path: Path) -> None:
    opened(log_file=tmp_path / "log", logtime=False, trace=True)
    with (
        Server(host="127.0.0.1", port=-1, thread=True, trace=True) as server,
        Wire(("127.0.0.1", server.client_port)) as wire,
    ):
        wire.send(
            b'CONNECT {"verbose": false, "name":"one, \\"two\\"","pass":"p","protocol":1}\r\n'
        )
        wire.sync()
    shown = (
        '[CONNECT {"verbose": false, "name":"one, \\\\"two\\\\"","pass":"[REDACTED]","protocol":1}]'
    )
    assert shown in (tmp_path / "log").read_text()


async def test_refused_publishes_and_ended_subscriptions_are_traced(
    opened: OpenLog, tmp_path: Path, eventually: Eventually
) -> None:
    opened(log_file=tmp_path / "log", logtime=False, trace=True)

    async def traced(server: Server, headers: bytes, publish: bytes) -> list[str]:
        (tmp_path / "log").write_text("")
        with Wire(("127.0.0.1", server.client_port)) as client:
            client.send(b'CONNECT {"verbose":false,"headers":%b}\r\nSUB a 1\r\n' % headers)
            client.send(publish)
            client.read_until_closed()
        await eventually(lambda: "DELSUB" in (tmp_path / "log").read_text())
        lines = (tmp_path / "log").read_text().splitlines()
        return [line.rpartition(" - ")[2] for line in lines if "[TRC]" in line][2:]

    with Server(host="127.0.0.1", port=-1, thread=True, trace=True, max_payload=9) as server:
        assert await traced(server, b"false", b"HPUB b 12 12\r\nNATS/1.0\r\n\r\n\r\n") == [
            "<<- [HPUB b 12 12]",
            "<-> [DELSUB 1]",
        ]
        assert await traced(server, b"true", b"PUB b 10\r\n0123456789\r\n") == [
            "<<- [PUB b 10]",
            "->> [-ERR Maximum Payload Violation]",
            "<-> [DELSUB 1]",
        ]


def test_headers_alone_are_traced(opened: OpenLog, tmp_path: Path) -> None:
    """nats-server's `traceMsg`: no payload with `trace_headers`, and no line for no bytes."""
    opened(log_file=tmp_path / "log", logtime=False, trace=True)

    def traced(server: Server) -> list[str]:
        before = (tmp_path / "log").stat().st_size
        with Wire(("127.0.0.1", server.client_port)) as wire:
            wire.send(b'CONNECT {"verbose":false,"headers":true}\r\nSUB a 1\r\n')
            wire.send(
                b"HPUB a 18 21\r\nNATS/1.0\r\nA: b\r\n\r\nxyz\r\nPUB a 3\r\nabc\r\nPUB a 0\r\n\r\n"
            )
            wire.sync()
        text = (tmp_path / "log").read_text()[before:]
        return [line.split(" - ")[2] for line in text.splitlines() if "MSG" in line]

    with Server(host="127.0.0.1", port=-1, thread=True, trace=True) as server:
        assert traced(server) == [
            '<<- MSG_PAYLOAD: ["NATS/1.0\\r\\nA: b\\r\\n\\r\\nxyz"]',
            "->> [HMSG a 1 18 21]",
            '->> MSG_PAYLOAD: ["NATS/1.0\\r\\nA: b\\r\\n\\r\\nxyz"]',
            '<<- MSG_PAYLOAD: ["abc"]',
            "->> [MSG a 1 3]",
            '->> MSG_PAYLOAD: ["abc"]',
            "->> [MSG a 1 0]",
        ]
        server.reload(trace=False, trace_headers=True)
        assert server.options.trace
        assert traced(server) == [
            '<<- MSG_PAYLOAD: ["NATS/1.0\\r\\nA: b"]',
            "->> [HMSG a 1 18 21]",
            '->> MSG_PAYLOAD: ["NATS/1.0\\r\\nA: b"]',
            "->> [MSG a 1 3]",
            "->> [MSG a 1 0]",
        ]
        server.reload(trace=False, trace_headers=False)
        assert traced(server) == []


@pytest.mark.parametrize(
    ("sent", "logged"),
    [
        (b'CONNECT {"protocol":7}', "invalid client protocol"),
        (
            b'CONNECT {"headers":false,"no_responders":true}',
            "no responders requires headers support",
        ),
        (b"CONNECT {}\r\nPUB a 2000000", "maximum payload exceeded: 2000000 vs 1048576"),
        (b'CONNECT {"headers":false}\r\nHPUB a 1 2', "message headers not supported"),
        (b"CONNECT {}\r\n-ERR 'x'", "Client Error 'x'"),
        (b"FOO", 'Client parser ERROR: "FOO\\r\\n"'),
    ],
)
def test_why_a_client_is_closed_is_logged(
    opened: OpenLog, tmp_path: Path, sent: bytes, logged: str
) -> None:
    """The lines are those of nats-server, except that of the parser."""
    opened(log_file=tmp_path / "log", logtime=False)
    with Server(host="127.0.0.1", port=-1, thread=True) as server:
        with Wire(("127.0.0.1", server.client_port)) as wire:
            wire.send(sent + b"\r\n")
            wire.read_until_closed()
    errors = [line for line in (tmp_path / "log").read_text().splitlines() if "[ERR]" in line]
    assert [line.split(" - cid:5 - ")[1] for line in errors] == [logged]
