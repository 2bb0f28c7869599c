"""The plugin of pytest in other projects: fixtures, marker, options, reports."""

from pathlib import Path

import pytest

from tests.testing.running import run_tests

pytestmark = pytest.mark.timeout(220)  # pytest in a process of its own is slow on a busy machine


FIXTURES = """
import socket
import unittest

import natsd.testing
import pytest


def greeting(server):
    host, port = server.client_url.removeprefix("nats://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        return connection.makefile().readline()


def test_a_server(natsd_server):
    assert greeting(natsd_server).startswith("INFO {")


def test_jetstream(natsd_jetstream):
    assert '"jetstream":true' in greeting(natsd_jetstream)


def test_many_servers(natsd_factory):
    servers = [natsd_factory(max_payload=number) for number in (100, 200)]
    servers.append(natsd_factory(process=True, max_payload=300))
    for number, server in enumerate(servers, 1):
        assert f'"max_payload":{number}00,' in greeting(server)


@pytest.mark.natsd(max_payload=100, server_name="marked")
class TestMarked:
    @pytest.mark.natsd(max_payload=300)
    def test_a_marker(self, natsd_server):
        assert '"server_name":"marked"' in greeting(natsd_server)
        assert '"max_payload":300,' in greeting(natsd_server)


shared = natsd.testing.fixture(scope="module", jetstream=True)
natsd_named = natsd.testing.fixture(name="named", server_name="named")


def test_shared(shared):
    shared.seen = "by the first test"


def test_shared_again(shared, named):
    assert shared.seen == "by the first test"
    assert '"server_name":"named"' in greeting(named)


class TestFixtureOfUnittest(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def _start(self, natsd_server):
        self.server = natsd_server

    def test_it(self):
        self.assertTrue(self.server.is_running)


class TestContextOfUnittest(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.server = self.enterContext(natsd.testing.server())

    async def test_it(self):
        client = await self.server.connect()
        await client.flush()
"""


def test_the_fixtures_are_there_without_a_conftest(tmp_path: Path) -> None:
    outcome = run_tests(tmp_path, FIXTURES, "--strict-markers")
    assert outcome.counts == {"passed": 8}, outcome.text


@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_tests_of_pytest_asyncio(tmp_path: Path, mode: str) -> None:
    outcome = run_tests(
        tmp_path,
        """
        import asyncio

        import pytest
        import pytest_asyncio


        @pytest_asyncio.fixture
        async def client(natsd_server):
            return await natsd_server.connect()


        @pytest.mark.asyncio
        async def test_a_client(natsd_server):
            client = await natsd_server.connect()
            await client.flush()


        @pytest.mark.asyncio
        async def test_a_client_of_a_fixture(client):
            await client.flush()


        def test_a_loop_of_its_own(natsd_server):
            async def main():
                client = await natsd_server.connect()
                await client.flush()

            asyncio.run(main())
        """,
        f"--asyncio-mode={mode}",
    )
    assert outcome.counts == {"passed": 3}, outcome.text


def test_tests_of_anyio(tmp_path: Path) -> None:
    pytest.importorskip("anyio")
    outcome = run_tests(
        tmp_path,
        """
        import pytest

        pytestmark = pytest.mark.anyio


        @pytest.fixture
        def anyio_backend():
            return "asyncio"


        @pytest.fixture
        async def client(natsd_server):
            return await natsd_server.connect()


        async def test_a_client(natsd_server):
            client = await natsd_server.connect()
            await client.flush()


        async def test_a_client_of_a_fixture(client):
            await client.flush()
        """,
    )
    assert outcome.counts == {"passed": 2}, outcome.text


LEAKING = """
import socket

import pytest

opened = []


@pytest.fixture(scope="session", autouse=True)
def closed_at_the_end():
    yield
    for connection in opened:
        connection.close()


def connect(server):
    host, port = server.client_url.removeprefix("nats://").split(":")
    connection = socket.create_connection((host, int(port)))
    connection.sendall(b'CONNECT {"name":"forgotten","lang":"C"}\\r\\n')
    connection.sendall(b"SUB orders.* 1\\r\\nPING\\r\\n")
    while b"PONG" not in connection.recv(4096):
        pass
    opened.append(connection)


def test_a_leak(natsd_server):
    connect(natsd_server)


@pytest.mark.natsd(check_leaks=False)
def test_an_allowed_leak(natsd_server):
    connect(natsd_server)


def test_no_leak(natsd_server):
    pass

"""


def test_a_leak_is_an_error_of_its_test(tmp_path: Path) -> None:
    outcome = run_tests(tmp_path, LEAKING)
    assert outcome.counts == {"passed": 3, "error": 1}, outcome.text
    assert "ERROR at teardown of test_a_leak" in outcome.text
    assert "forgotten, C, 127.0.0.1:" in outcome.text
    assert "subscribed to orders.*" in outcome.text
    assert "--natsd-allow-leaks" in outcome.text
    assert "natsd log of nats://127.0.0.1:" in outcome.text


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [(["--natsd-allow-leaks"], ""), ([], "natsd_check_leaks = false")],
    ids=["option", "setting"],
)
def test_leaks_may_be_allowed(tmp_path: Path, arguments: list[str], settings: str) -> None:
    outcome = run_tests(tmp_path, LEAKING, *arguments, settings=settings)
    assert outcome.counts == {"passed": 3}, outcome.text


def test_logged_errors_fail_a_test_if_wanted(tmp_path: Path) -> None:
    tests = """
    import socket


    def test_garbage(natsd_server):
        host, port = natsd_server.client_url.removeprefix("nats://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(b"GARBAGE\\r\\n")
            while connection.recv(4096):
                pass
    """
    assert run_tests(tmp_path, tests).counts == {"passed": 1}
    outcome = run_tests(tmp_path, tests, "--natsd-check-errors")
    assert outcome.counts == {"passed": 1, "error": 1}, outcome.text
    assert "the server logged errors:" in outcome.text


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [(["--natsd-process"], ""), ([], "natsd_process = true")],
    ids=["option", "setting"],
)
def test_all_servers_as_processes(tmp_path: Path, arguments: list[str], settings: str) -> None:
    tests = """
    import os


    def test_it(natsd_server, natsd_factory):
        assert natsd_server.pid != os.getpid()
        assert natsd_factory(jetstream=True).pid != natsd_server.pid
    """
    outcome = run_tests(tmp_path, tests, *arguments, settings=settings)
    assert outcome.counts == {"passed": 1}, outcome.text


def test_a_failed_test_shows_the_log_of_its_servers(tmp_path: Path) -> None:
    outcome = run_tests(
        tmp_path,
        """
        import natsd.testing

        shared = natsd.testing.fixture(scope="session", process=True, server_name="shared")


        def test_passes(shared, natsd_factory):
            natsd_factory(server_name="forgotten")
            shared.reload(max_payload=1000)


        def test_fails(shared, natsd_factory, caplog):
            shared.reload(max_payload=2000)
            natsd_factory(server_name="thread")
            natsd_factory(server_name="process", process=True)
            assert caplog.text == ""
            raise ZeroDivisionError
        """,
        "-n2",
        "--dist=loadfile",
    )
    assert outcome.counts == {"passed": 1, "failed": 1}, outcome.text
    assert outcome.text.count("natsd log of nats://") == 3
    for shown in ("max_payload = 2000", "Name:     thread", "Name:     process"):
        assert shown in outcome.text
    for hidden in ("max_payload = 1000", "forgotten", "Name:     shared", "Captured log"):
        assert hidden not in outcome.text


def test_the_log_may_go_to_the_programs_logging(tmp_path: Path) -> None:
    outcome = run_tests(
        tmp_path,
        """
        def test_it(natsd_factory, caplog):
            natsd_factory()
            assert caplog.text == ""
            natsd_factory(propagate_logs=True)
            assert "Server is ready" in caplog.text
        """,
    )
    assert outcome.counts == {"passed": 1}, outcome.text
