"""The server's own parts publish, subscribe and request; real clients are on the other side."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import nats
import pytest
from nats.aio.client import Client as NatsClient

from natsd import Server
from natsd.accounts import Account, InternalClient, NoRespondersError
from natsd.clients.client import Client
from natsd.core.routing import InvalidSubject
from tests.clients.barrier import processed
from tests.waiting import Eventually

pytestmark = pytest.mark.both_loops

Received = list[tuple[str, str | None, bytes, bytes]]
Connect = Callable[[], Awaitable[NatsClient]]
HEADERS = b"NATS/1.0\r\nColor: red\r\n\r\n"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(host="127.0.0.1", port=-1) as server:
        yield server


@pytest.fixture
def account(server: Server) -> Account:
    return server.accounts["$G"]


@pytest.fixture
def internal(account: Account) -> InternalClient:
    return account.internal_client


@pytest.fixture
async def connect(server: Server) -> AsyncIterator[Connect]:
    """`client = await connect()`: in the global account, closed when the test ends."""
    connected = []

    async def connect() -> NatsClient:
        connected.append(await nats.connect(server.client_url))
        return connected[-1]

    yield connect
    for client in connected:
        await client.close()


class Log:
    """A handler that writes down what it is called with."""

    def __init__(self) -> None:
        self.received: Received = []

    def __call__(self, subject: str, reply: str | None, headers: bytes, payload: bytes) -> None:
        self.received.append((subject, reply, headers, payload))

    @property
    def payloads(self) -> list[bytes]:
        return [payload for *_, payload in self.received]


# ---- publish


async def test_a_client_receives_what_is_published(
    internal: InternalClient, connect: Connect
) -> None:
    client = await connect()
    subscription = await client.subscribe("foo.*")
    await processed(client)
    internal.publish("foo.1", b"plain")
    internal.publish("foo.2", b"asks", reply="answer.here")
    internal.publish("foo.3", b"colored", headers=HEADERS)
    internal.publish("foo.4")
    plain, asks, colored, empty = [await subscription.next_msg(timeout=5) for _ in range(4)]
    assert (plain.subject, plain.reply, plain.headers, plain.data) == ("foo.1", "", None, b"plain")
    assert (asks.reply, asks.data) == ("answer.here", b"asks")
    assert (colored.headers, colored.data) == ({"Color": "red"}, b"colored")
    assert empty.data == b""


@pytest.mark.parametrize("size", [0, 1, 8 * 1024, 64 * 1024, 1024 * 1024])
async def test_payloads_of_any_size(internal: InternalClient, connect: Connect, size: int) -> None:
    client = await connect()
    subscription = await client.subscribe("foo")
    await processed(client)
    payload = bytes(number % 251 for number in range(size))
    for _ in range(3):
        internal.publish("foo", payload)
    for _ in range(3):
        assert (await subscription.next_msg(timeout=5)).data == payload


@pytest.mark.parametrize("subject", ["", "foo bar", "foo\r\nPUB x", "foo\tbar", "foo\n"])
async def test_a_subject_that_would_break_the_protocol_is_refused(
    internal: InternalClient, subject: str
) -> None:
    with pytest.raises(InvalidSubject):
        internal.publish(subject)
    with pytest.raises(InvalidSubject):
        internal.publish("foo", reply=subject)
    with pytest.raises(InvalidSubject):
        await internal.request(subject)


async def test_other_odd_subjects_reach_whom_a_clients_would(internal: InternalClient) -> None:
    log = Log()
    internal.subscribe(">", log)
    for subject in (".foo", "foo..bar", "foo.", "foo.*", ">", "foo.\udcff"):
        internal.publish(subject, reply=subject)
    internal.publish("last")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [subject for subject, *_ in log.received] == ["foo.*", ">", "foo.\udcff", "last"]


async def test_messages_arrive_in_the_order_of_the_calls(
    internal: InternalClient, connect: Connect
) -> None:
    client = await connect()
    subscription = await client.subscribe(">")
    await processed(client)
    for number in range(1000):
        internal.publish(f"n.{number % 7}", b"%d" % number)
    received = [int((await subscription.next_msg(timeout=5)).data) for _ in range(1000)]
    assert received == list(range(1000))


# ---- subscribe


async def test_a_handler_receives_what_clients_publish(
    internal: InternalClient, connect: Connect
) -> None:
    log = Log()
    internal.subscribe("foo.>", log)
    client = await connect()
    await client.publish("foo.1", b"plain")
    await client.publish("foo.2", b"asks", reply="answer.here")
    await client.publish("foo.3", b"colored", headers={"Color": "red"})
    await client.publish("bar", b"elsewhere")
    await processed(client)
    assert log.received == [
        ("foo.1", None, b"", b"plain"),
        ("foo.2", "answer.here", b"", b"asks"),
        ("foo.3", None, HEADERS, b"colored"),
    ]


async def test_a_service_is_told_who_sent_a_message(
    server: Server, internal: InternalClient, connect: Connect
) -> None:
    """Large payloads, which take many reads, too; a message of the server's own has no sender."""
    origins: list[int] = []

    def note(_subject: str, _reply: str | None, _head: bytes, _data: bytes, origin: object) -> None:
        origins.append(origin.cid if isinstance(origin, Client) else 0)

    internal.serve("foo", note)
    clients = [await connect(), await connect()]
    for client in clients:
        await client.publish("foo", b"small")
        await client.publish("foo", b"x" * 500_000)
        await processed(client)
        internal.publish("foo", b"the server's")
        await processed(client)
    first, second = (client.client_id for client in clients)
    assert origins == [first, first, 0, second, second, 0]


async def test_a_message_that_follows_from_a_clients_is_the_servers_own(
    internal: InternalClient, connect: Connect
) -> None:
    origins: list[object] = []
    internal.subscribe("foo", lambda *_message: internal.publish("bar"))
    internal.serve("bar", lambda *message: origins.append(message[-1]))
    client = await connect()
    await client.publish("foo", b"")
    await processed(client)
    assert origins == [None]


async def test_what_a_handler_is_given_is_its_own(
    internal: InternalClient, connect: Connect
) -> None:
    """The read buffer is used again; what was received from it stays as it was."""
    log = Log()
    internal.subscribe("foo", log)
    client = await connect()
    sent = [bytes([number]) * (1 + 977 * number) for number in range(64)]
    for payload in sent:
        await client.publish("foo", payload)
    await processed(client)
    for _ in range(10):
        await client.publish("other", b"z" * 50_000)
    await processed(client)
    assert log.payloads == sent
    assert all(type(payload) is bytes for payload in log.payloads)


async def test_subjects_that_are_no_text_arrive(internal: InternalClient, server: Server) -> None:
    log = Log()
    internal.subscribe("foo.*", log)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.client_port)
    writer.write(b"PUB foo.\xff\xfe 2\r\nhi\r\nPING\r\n")
    while await reader.readline() != b"PONG\r\n":
        pass
    assert [subject.encode("utf-8", "surrogateescape") for subject, *_ in log.received] == [
        b"foo.\xff\xfe"
    ]
    writer.close()
    await writer.wait_closed()


async def test_an_invalid_subscription_is_refused(internal: InternalClient) -> None:
    for subject in ("", "foo..bar", ">.foo"):
        with pytest.raises(InvalidSubject):
            internal.subscribe(subject, Log())


async def test_a_queue_group_of_handlers_and_clients_shares(
    internal: InternalClient, connect: Connect
) -> None:
    logs = [Log(), Log()]
    for log in logs:
        internal.subscribe("work", log, queue="workers")
    worker, publisher = await connect(), await connect()
    in_client: list[bytes] = []

    async def keep(message: Any) -> None:
        in_client.append(message.data)

    await worker.subscribe("work", queue="workers", cb=keep)
    await processed(worker)
    for number in range(300):
        await publisher.publish("work", b"%d" % number)
    await processed(publisher)
    await processed(worker)
    shares = [in_client, *(log.payloads for log in logs)]
    assert sorted(int(n) for share in shares for n in share) == list(range(300))
    assert min(map(len, shares)) > 50


# ---- handlers that do things


async def test_publishing_in_a_handler_is_queued_not_recursive(
    internal: InternalClient, eventually: Eventually
) -> None:
    """Ten thousand messages deep, and no recursion: depth is never more than one."""
    depth = deepest = calls = 0

    def again(subject: str, reply: str | None, headers: bytes, payload: bytes) -> None:
        nonlocal depth, deepest, calls
        depth += 1
        deepest = max(deepest, depth)
        calls += 1
        if calls < 10_000:
            internal.publish("again")
        depth -= 1

    internal.subscribe("again", again)
    internal.publish("again")
    await eventually(lambda: calls == 10_000)
    assert deepest == 1


async def test_an_endless_chain_of_handlers_stops_nobody(
    internal: InternalClient, connect: Connect
) -> None:
    subscription = internal.subscribe("again", lambda *_: internal.publish("again"))
    internal.publish("again")
    client = await connect()
    for _ in range(10):
        await client.flush(timeout=2)
    internal.unsubscribe(subscription)


async def test_a_handler_that_raises_is_logged_and_closes_nobody(
    internal: InternalClient, connect: Connect, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("in a handler")

    log = Log()
    internal.subscribe("foo", fail)
    internal.subscribe("foo", log)
    client = await connect()
    subscription = await client.subscribe("foo")
    for _ in range(3):
        await client.publish("foo", b"hi")
    await processed(client)
    assert log.payloads == [b"hi"] * 3
    assert [(await subscription.next_msg(timeout=5)).data for _ in range(3)] == [b"hi"] * 3
    assert client.is_connected
    assert len(server.clients) == 1
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 3
    assert all(record.exc_info and record.exc_info[0] is ZeroDivisionError for record in errors)


async def test_unsubscribing_inside_a_handler(internal: InternalClient, connect: Connect) -> None:
    log = Log()

    def once(*message: Any) -> None:
        log(*message)
        internal.unsubscribe(subscription)

    subscription = internal.subscribe("foo", once)
    client = await connect()
    await client.publish("foo", b"1")
    await processed(client)
    await client.publish("foo", b"2")
    await processed(client)
    assert log.payloads == [b"1"]


async def test_unsubscribing_another_and_subscribing_inside_a_handler(
    internal: InternalClient, connect: Connect
) -> None:
    first, second = Log(), Log()
    victim = internal.subscribe("foo", first)

    def replace(*_: object) -> None:
        internal.unsubscribe(victim)
        internal.subscribe("foo", second)
        internal.unsubscribe(replacing)

    replacing = internal.subscribe("foo", replace)
    client = await connect()
    for number in range(3):
        await client.publish("foo", b"%d" % number)
        await processed(client)
    assert first.payloads[1:] == []
    assert second.payloads == [b"1", b"2"]


async def test_unsubscribing_twice_is_once(internal: InternalClient, account: Account) -> None:
    before = account.sublist.count
    subscription = internal.subscribe("foo", Log())
    assert account.sublist.count == before + 1
    internal.unsubscribe(subscription)
    internal.unsubscribe(subscription)
    assert account.sublist.count == before


# ---- requests


async def test_a_client_answers_a_request(
    internal: InternalClient, account: Account, connect: Connect
) -> None:
    client = await connect()

    async def answer(message: Any) -> None:
        await message.respond(b"not " + message.data)

    await client.subscribe("ask", cb=answer)
    await processed(client)
    before = account.sublist.count
    assert await internal.request("ask", b"me") == b"not me"
    answers = await asyncio.gather(*(internal.request("ask", b"%d" % n) for n in range(50)))
    assert answers == [b"not %d" % n for n in range(50)]
    assert account.sublist.count == before


async def test_no_client_can_answer_a_request_that_it_does_not_get(
    internal: InternalClient, connect: Connect
) -> None:
    """Not even one that saw the reply subjects of earlier requests."""
    log = Log()
    internal.subscribe("ask", log)
    asking = [asyncio.create_task(internal.request("ask", timeout_s=0.5)) for _ in range(20)]
    await asyncio.sleep(0)
    client = await connect()
    for number in range(50):
        await client.publish(f"_INBOX.$internal.{number}", b"forged")
    await processed(client)
    inboxes = [reply.removeprefix("_INBOX.$internal.") for _, reply, *_ in log.received if reply]
    for characters in zip(*inboxes, strict=True):
        assert len(set(characters)) > 1
    assert len(inboxes[0]) == 24
    outcomes = await asyncio.gather(*asking, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {TimeoutError}


async def test_a_handler_answers_a_clients_request(
    internal: InternalClient, connect: Connect
) -> None:
    def answer(subject: str, reply: str | None, headers: bytes, payload: bytes) -> None:
        assert reply is not None
        internal.publish(reply, payload[::-1])

    internal.subscribe("reverse", answer)
    client = await connect()
    assert (await client.request("reverse", b"abc", timeout=5)).data == b"cba"


async def test_a_handler_answers_an_internal_request(internal: InternalClient) -> None:
    def answer(_subject: str, reply: str | None, _headers: bytes, _payload: bytes) -> None:
        assert reply is not None
        internal.publish(reply, b"yes")

    internal.subscribe("ask", answer)
    assert await internal.request("ask") == b"yes"


async def test_no_responders_is_said_at_once(internal: InternalClient, connect: Connect) -> None:
    loop = asyncio.get_running_loop()
    asked_at = loop.time()
    with pytest.raises(NoRespondersError):
        await internal.request("nobody", timeout_s=30)
    assert loop.time() - asked_at < 5
    client = await connect()
    with pytest.raises(nats.errors.NoRespondersError):
        await client.request("nobody", timeout=30)


async def test_a_request_nobody_answers_times_out(
    internal: InternalClient, account: Account
) -> None:
    internal.subscribe("ask", Log())
    before = account.sublist.count
    with pytest.raises(TimeoutError):
        await internal.request("ask", timeout_s=0.02)
    assert account.sublist.count == before


async def test_a_cancelled_request_leaves_nothing(
    internal: InternalClient, account: Account
) -> None:
    internal.subscribe("ask", Log())
    before = account.sublist.count
    asking = asyncio.create_task(internal.request("ask"))
    await asyncio.sleep(0)
    assert account.sublist.count == before + 1
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert account.sublist.count == before


async def test_answers_after_the_first_are_dropped(internal: InternalClient) -> None:
    def answer_thrice(_subject: str, reply: str | None, _headers: bytes, _payload: bytes) -> None:
        assert reply is not None
        for number in range(3):
            internal.publish(reply, b"%d" % number)

    internal.subscribe("ask", answer_thrice)
    assert await internal.request("ask") == b"0"


# ---- accounts


async def test_two_accounts_are_strangers(server: Server, connect: Connect) -> None:
    here, there = server.accounts["$G"], server.accounts["$SYS"]
    heard_here, heard_there = Log(), Log()
    here.internal_client.subscribe(">", heard_here)
    client = await connect()
    there.internal_client.subscribe(">", heard_there)
    await client.publish("foo", b"from a client")
    await processed(client)
    here.internal_client.publish("foo", b"from here")
    there.internal_client.publish("foo", b"from there")
    await processed(client)
    assert heard_here.payloads == [b"from a client", b"from here"]
    assert heard_there.payloads == [b"from there"]
    with pytest.raises(TimeoutError):
        await there.internal_client.request("ask", timeout_s=0.02)


async def test_counters_of_an_account(
    internal: InternalClient, account: Account, server: Server, connect: Connect
) -> None:
    """In: what clients publish. Out: what is delivered to clients; handlers do not count."""
    log = Log()
    internal.subscribe("foo", log)
    client = await connect()
    subscription = await client.subscribe("foo")
    await client.publish("foo", b"12345")
    await processed(client)
    counters = account.counters
    assert (counters.in_msgs, counters.in_bytes) == (1, 5)
    assert (counters.out_msgs, counters.out_bytes) == (1, 5)
    internal.publish("foo", b"123")
    internal.publish("nobody", b"1")
    for _ in range(2):
        await subscription.next_msg(timeout=5)
    await processed(client)
    assert (counters.in_msgs, counters.in_bytes) == (1, 5)
    assert (counters.out_msgs, counters.out_bytes) == (2, 8)
    other = server.accounts["$SYS"].counters
    assert (other.in_msgs, other.out_msgs) == (0, 0)


async def test_connections_of_an_account(
    account: Account, connect: Connect, eventually: Eventually
) -> None:
    clients = [await connect() for _ in range(3)]
    assert account.connections == 3
    for client in clients:
        await client.close()
    await eventually(lambda: account.connections == 0)


async def test_a_stopped_servers_account_is_silent(server: Server, connect: Connect) -> None:
    internal = server.accounts["$G"].internal_client
    log = Log()
    internal.subscribe("foo", log)
    await server.stop()
    internal.publish("foo", b"too late")
    await asyncio.sleep(0)
    assert log.received == []
    with pytest.raises(NoRespondersError):
        await internal.request("foo")
    assert server.accounts["$G"].connections == 0


async def test_a_request_under_way_ends_with_the_server(server: Server) -> None:
    internal = server.accounts["$G"].internal_client
    internal.subscribe("ask", Log())
    asking = asyncio.create_task(internal.request("ask", timeout_s=30))
    await asyncio.sleep(0)
    await server.stop()
    async with asyncio.timeout(5):
        with pytest.raises(NoRespondersError):
            await asking
