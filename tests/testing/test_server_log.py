"""The log of a test's server in a thread, beside the program's own logging."""

import asyncio
import logging

import pytest

from natsd import Server, testing

LOGGER = logging.getLogger("natsd")


def test_records_go_to_their_server_alone(caplog: pytest.LogCaptureFixture) -> None:
    with testing.server(server_name="one") as one, testing.server(server_name="two") as two:
        assert "Name:     one" in one.log
        assert "Name:     two" in two.log
        assert "Name:     two" not in one.log
    assert caplog.records == []


def test_other_servers_log_as_before(caplog: pytest.LogCaptureFixture) -> None:
    with testing.server() as server:
        with Server(port=-1, host="127.0.0.1", thread=True):
            pass
        assert caplog.records == []
        caplog.set_level(logging.INFO)
        with Server(port=-1, host="127.0.0.1", thread=True, server_name="other"):
            pass
        assert "other" in caplog.text
        assert "other" not in server.log


def test_the_logger_is_left_as_it_was() -> None:
    before = (LOGGER.level, LOGGER.propagate, list(LOGGER.handlers))
    with testing.server(debug=True):
        assert LOGGER.level == logging.DEBUG
        with testing.server(trace=True):
            assert LOGGER.level < logging.DEBUG
        assert LOGGER.level == logging.DEBUG
    assert (LOGGER.level, LOGGER.propagate, list(LOGGER.handlers)) == before


async def test_each_server_has_its_own_level() -> None:
    traced = "<<- [PUB orders 0]"
    async with testing.server(debug=True, trace=True) as talkative, testing.server() as quiet:
        for server in (talkative, quiet):
            await publish(server)
        await asyncio.to_thread(talkative.wait_for_log, traced)
        assert "[TRC]" not in quiet.log
        quiet.reload(trace=True)
        await publish(quiet)
        await asyncio.to_thread(quiet.wait_for_log, traced)


async def publish(server: testing.NatsServer) -> None:
    async with server.connect() as client:
        await client.publish("orders")
        await client.flush()


def test_errors_and_their_tracebacks() -> None:
    with testing.server() as server:
        pass
    assert server.log.errors == []
    assert str(server.log) == server.log.text
