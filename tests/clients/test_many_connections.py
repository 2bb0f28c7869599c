"""Ten thousand connections at once."""

from __future__ import annotations

import random
import resource
from collections.abc import Callable, Iterator

import pytest

from tests.clients.conftest import StartServerProcess
from tests.clients.measure import report, resident_bytes
from tests.clients.wire import Wire

CONNECTIONS = 10_000
FILES_NEEDED = CONNECTIONS + 500


@pytest.fixture
def many_files() -> Iterator[None]:
    """Raise the limit of open files for this process and the servers it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES_NEEDED:
        pytest.skip(f"the hard limit of open files is {hard}, {FILES_NEEDED} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES_NEEDED), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_ten_thousand_connections(
    start_server_process: StartServerProcess, record_property: Callable[[str, object], None]
) -> None:
    """Each client is served, gets its own and the common messages, and costs little memory."""
    server = start_server_process(ping_interval=600)
    before_bytes = resident_bytes(server.pid)
    wires = []
    for number in range(CONNECTIONS):
        wires.append(Wire(server.address))
        wires[-1].send(
            b'CONNECT {"verbose":false,"pedantic":false}\r\n'
            + b"SUB all 1\r\nSUB one.%d 2\r\nPING\r\n" % number
        )
    for wire in wires:
        assert wire.read_frame() == b"PONG\r\n"
    per_connection_kib = (resident_bytes(server.pid) - before_bytes) / CONNECTIONS / 1024
    record_property("connection_kib", round(per_connection_kib, 1))
    report(f"{per_connection_kib:.1f} KiB of the server's memory for each connection")

    publisher = wires[0]
    publisher.send(b"PUB all 5\r\nhello\r\n")
    for wire in wires:
        assert wire.read_message() == b"MSG all 1 5\r\nhello\r\n"
    for number in random.Random(1).sample(range(CONNECTIONS), 500):
        publisher.send(b"PUB one.%d 2\r\nhi\r\n" % number)
        assert wires[number].read_message() == b"MSG one.%d 2 2\r\nhi\r\n" % number

    for wire in wires[1:]:
        wire.close()
    publisher.send(b"PUB all 4\r\nlast\r\n")
    assert publisher.read_message() == b"MSG all 1 4\r\nlast\r\n"
    publisher.close()
