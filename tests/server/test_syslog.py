"""The log by syslog: what a service receives by UDP, TCP and the sockets of a machine."""

import asyncio
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from natsd import Server
from natsd.config import OptionsError, make_options
from natsd.config.levels import TRACE
from natsd.config.load import load_options
from natsd.server import syslog
from natsd.server.log import DaemonLog, LogError
from natsd.server.reload import ReloadError
from tests.waiting import DEADLINE_S

Open = Callable[..., DaemonLog]

logger = logging.getLogger("natsd.server")
PID = os.getpid()


@pytest.fixture
def opened() -> Iterator[Open]:
    """Yield a function that opens logs; close them afterwards."""
    with ExitStack() as logs:

        def open_with(**settings: object) -> DaemonLog:
            log = DaemonLog(make_options(**settings))
            logs.callback(log.close)
            return log

        yield open_with


def bound(kind: int, place: Path) -> socket.socket:
    """A service's socket at a path."""
    service = socket.socket(socket.AF_UNIX, kind)
    service.settimeout(DEADLINE_S)
    service.bind(str(place))
    return service


def udp_service() -> socket.socket:
    service = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    service.settimeout(DEADLINE_S)
    service.bind(("127.0.0.1", 0))
    return service


def url(scheme: str, service: socket.socket) -> str:
    return f"{scheme}://127.0.0.1:{service.getsockname()[1]}"


def lines_of(connection: socket.socket, count: int) -> list[str]:
    """The next lines of a stream."""
    with connection.makefile(encoding="utf-8") as stream:
        return [stream.readline() for _ in range(count)]


def test_udp_gets_the_severities_of_nats_server(opened: Open) -> None:
    with closing(udp_service()) as service:
        opened(remote_syslog=url("udp", service), debug=True, trace=True)
        levels = (50, 40, 30, 20, TRACE, 10)
        for level in levels:
            logger.log(level, "x %d", level)
        got = [service.recv(65536).decode() for _ in range(6)]
    time_host = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d) " + re.escape(
        socket.gethostname()
    )
    for line, severity, level in zip(got, (2, 3, 4, 5, 5, 7), levels, strict=True):
        assert re.fullmatch(rf"<{24 + severity}>{time_host} natsd\[{PID}\]: x {level}\n", line)


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_a_socket_of_the_machine_gets_no_host(opened: Open, tmp_path: Path, kind: int) -> None:
    with closing(bound(kind, tmp_path / "log")) as service:
        if kind == socket.SOCK_STREAM:
            service.listen()
        opened(remote_syslog=f"unix://{tmp_path}/log")
        logger.info("one\ntwo")
        if kind == socket.SOCK_STREAM:
            service.accept()[0].close()  # of the check at the start
            connection = service.accept()[0]
            with closing(connection):
                (line,) = lines_of(connection, 1)
        else:
            line = service.recv(65536).decode()
    assert re.fullmatch(
        rf"<29>[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d natsd\[{PID}\]: one\\ntwo\n", line
    )


def test_the_service_of_this_machine(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syslog, "LOCAL_PATHS", (str(tmp_path / "none"), str(tmp_path / "log")))
    with pytest.raises(LogError, match=r"^error connecting to syslog: dial syslog of this machine"):
        opened(syslog=True)
    with closing(bound(socket.SOCK_DGRAM, tmp_path / "log")) as service:
        opened(syslog=True)
        logger.warning("x")
        assert service.recv(65536).startswith(b"<28>")


def test_a_traceback_is_sent_as_lines(opened: Open) -> None:
    with closing(udp_service()) as service:
        opened(remote_syslog=url("udp", service))
        try:
            raise ValueError("why\x1b")
        except ValueError:
            logger.exception("failed")
        texts = [service.recv(65536).decode().partition("]: ")[2] for _ in range(2)]
        assert texts == ["failed\n", "    Traceback (most recent call last):\n"]


def test_a_long_line_is_cut(opened: Open) -> None:
    with closing(udp_service()) as service:
        opened(remote_syslog=url("udp", service))
        logger.info("x" * (1 << 20))
        line = service.recv(1 << 20)
    assert (len(line), line[-2:]) == (syslog.LINE_BYTES_MAX, b"x\n")


def test_it_connects_again(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syslog, "RETRY_S", 0.01)
    with closing(socket.create_server(("127.0.0.1", 0))) as service:
        port = service.getsockname()[1]
        opened(remote_syslog=f"tcp://127.0.0.1:{port}")
        service.accept()[0].close()
        logger.info("first")
        connection = service.accept()[0]
        assert lines_of(connection, 1)[0].endswith(": first\n")
        connection.close()
    with closing(socket.create_server(("127.0.0.1", port))) as service:
        connections: list[socket.socket] = []
        accepting = threading.Thread(target=lambda: connections.append(service.accept()[0]))
        accepting.start()
        give_up_at = time.monotonic() + DEADLINE_S
        while accepting.is_alive():  # the first lines end in the socket that the service closed
            assert time.monotonic() < give_up_at
            logger.info("again")
            accepting.join(0.01)
        with closing(connections[0]) as connection:
            assert lines_of(connection, 1)[0].endswith(": again\n")


def test_a_service_that_does_not_read_blocks_nobody_and_costs_bounded_memory(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syslog, "QUEUE_BYTES_MAX", 100_000)
    monkeypatch.setattr(syslog, "FLUSH_S", 0.1)
    with closing(socket.create_server(("127.0.0.1", 0))) as service:
        log = opened(remote_syslog=url("tcp", service))
        service.accept()[0].close()
        for _ in range(2000):
            logger.info("x" * 10_000)
        handler = log._handler
        assert isinstance(handler, syslog.SyslogHandler)
        assert 0 < handler._queued_bytes <= 100_000
        with closing(service.accept()[0]) as connection, connection.makefile("rb") as stream:
            lost = next(line for line in stream if b"entries of the log are lost" in line)
        assert lost.startswith(b"<28>")


def test_a_service_that_is_not_there_is_one_line(opened: Open) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as service:
        port = service.getsockname()[1]
    text = f"error connecting to syslog: dial 127.0.0.1:{port}: connection refused"
    with pytest.raises(LogError, match=f"^{re.escape(text)}$"):
        opened(remote_syslog=f"tcp://127.0.0.1:{port}")


def test_a_file_goes_before_syslog(opened: Open, tmp_path: Path) -> None:
    opened(log_file=tmp_path / "log", remote_syslog="tcp://127.0.0.1:1")
    logger.info("x")
    assert (tmp_path / "log").read_text().endswith("[INF] x\n")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("http://x", 'invalid network type: "http"; there are udp, tcp and unix'),
        ("localhost", 'invalid network type: ""; there are udp, tcp and unix'),
        ("udp://", '"udp://" lacks a host'),
        ("unix://", '"unix://" lacks a path'),
        ("udp://x:y", r'"udp://x:y" is no URL: Port could not be cast to integer value as \'y\''),
    ],
)
def test_an_address_that_is_none(given: str, said: str) -> None:
    with pytest.raises(OptionsError) as caught:
        make_options(remote_syslog=given)
    assert str(caught.value) == "remote_syslog: " + said.replace("\\", "")


async def test_a_reload_of_the_file_moves_the_log_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "natsd.conf"
    before = f'listen: "127.0.0.1:-1"\nlog_file: "{tmp_path}/log"\n'
    path.write_text(before)
    loaded = load_options(path)
    log = DaemonLog(loaded.options)
    with closing(udp_service()) as service, closing(log):
        async with Server(loaded.options) as server:
            server.log, server.config = log, loaded
            with closing(socket.create_server(("127.0.0.1", 0))) as gone:
                port = gone.getsockname()[1]
            path.write_text(f'listen: "127.0.0.1:-1"\nremote_syslog: "tcp://127.0.0.1:{port}"\n')
            with pytest.raises(ReloadError, match=r"^error connecting to syslog: dial 127"):
                await server.reload_file()
            path.write_text(f'listen: "127.0.0.1:-1"\nremote_syslog: "{url("udp", service)}"\n')
            await server.reload_file()
            told = await asyncio.to_thread(service.recv, 65536)
            assert b": Reloaded: " in told
            path.write_text(before)
            await server.reload_file()
            assert "Reloaded: remote_syslog = " in (tmp_path / "log").read_text()


def test_a_log_that_is_replaced_is_not_waited_for(opened: Open) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as service:
        log = opened(remote_syslog=url("tcp", service))
        service.accept()[0].close()
        handler = log._handler
        assert isinstance(handler, syslog.SyslogHandler)
        for _ in range(500):
            logger.info("x" * 30_000)
        with ExitStack() as undo:
            log.prepare(make_options(), undo)()
            undo.pop_all()
        assert handler._thread.is_alive()
        with closing(service.accept()[0]) as connection, connection.makefile("rb") as stream:
            assert len(list(stream)) > 100
    handler._thread.join(DEADLINE_S)
    assert not handler._thread.is_alive()
