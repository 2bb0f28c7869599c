"""A shop's traffic on one server: streams, consumers that keep up or lag, and a slow consumer."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import nats
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.errors import Error
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, StorageType

from natsd import Server
from tests.clients.wire import Wire

SLOW_BYTES = 100_000
TELEMETRY_S, ORDERS_S, EVENTS_S, REQUESTS_S = 0.05, 0.1, 0.1, 0.05


@asynccontextmanager
async def under_load(server: Server) -> AsyncIterator[None]:
    """Keep the server busy. Its `max_pending` must be below the 20 x SLOW_BYTES of the slow one."""
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:

        async def client(name: str) -> NatsClient:
            connected = await nats.connect(server.client_url, name=name)
            stack.push_async_callback(connected.close)
            return connected

        stream = (await client("orders-api")).jetstream()
        await _add_streams(stream)
        running = [
            _publish(await client("checkout"), ["orders.new.{}", "orders.paid.{}"], 300, ORDERS_S),
            _publish(await client("tracker"), ["events.web.{}", "events.app.{}"], 6000, EVENTS_S),
            _publish(await client("edge-berlin"), ["telemetry.{}.cpu"], 64, TELEMETRY_S, 60),
            _publish(await client("edge-lisbon"), ["telemetry.{}.disk"], 90, TELEMETRY_S, 40),
            _request(await client("storefront")),
            _work((await client("billing-1")).jetstream(), "ORDERS", "billing", 0.05),
            _work((await client("shipping-1")).jetstream(), "ORDERS", "shipping", 1.0),
            _work((await client("analytics-1")).jetstream(), "EVENTS", "analytics", 0.2),
        ]
        for name, subject, queue in (
            ("metrics", "telemetry.>", ""),
            ("alerts", "telemetry.*.cpu", ""),
            ("pricing-1", "rpc.price", "pricing"),
            ("pricing-2", "rpc.price", "pricing"),
        ):
            await (await client(name)).subscribe(subject, queue, cb=_answer)
        await _be_slow(server, await client("exporter"))
        started = [tasks.create_task(each) for each in running]
        try:
            yield
        finally:
            while (await asyncio.wait(started, timeout=0.05))[1]:  # `wait_for` may lose a cancel
                for task in started:
                    task.cancel()


async def _add_streams(stream: JetStreamContext) -> None:
    await stream.add_stream(
        name="ORDERS", subjects=["orders.>"], max_msgs=20_000, description="Every order"
    )
    await stream.add_stream(name="EVENTS", subjects=["events.*.*", "audit.>"], max_bytes=50_000_000)
    await stream.add_stream(name="SESSIONS", subjects=["session.>"], storage=StorageType.MEMORY)
    await stream.create_key_value(bucket="settings")
    for name, consumer in (("ORDERS", "billing"), ("ORDERS", "shipping"), ("EVENTS", "analytics")):
        await stream.add_consumer(name, ConsumerConfig(durable_name=consumer, max_ack_pending=500))


async def _answer(message: Msg) -> None:
    if message.reply:
        await message.respond(b"12.50")


async def _repeat(act: Callable[[], Awaitable[object]], pause_s: float) -> None:
    """Act again and again, at times more often than at others."""
    while True:
        with contextlib.suppress(Error, TimeoutError):
            await act()
        await asyncio.sleep(pause_s * (1 + math.sin(asyncio.get_running_loop().time() / 6) / 2))


async def _publish(
    client: NatsClient, subjects: list[str], size: int, pause_s: float, batch: int = 15
) -> None:
    sent = 0

    async def act() -> None:
        nonlocal sent
        for _ in range(batch):
            sent += 1
            await client.publish(subjects[sent % len(subjects)].format(sent % 50), b"x" * size)

    await _repeat(act, pause_s)


async def _request(client: NatsClient) -> None:
    await _repeat(lambda: client.request("rpc.price", b"apples", timeout=1), REQUESTS_S)


async def _work(stream: JetStreamContext, name: str, consumer: str, pause_s: float) -> None:
    pulled = await stream.pull_subscribe_bind(consumer=consumer, stream=name)

    async def act() -> None:
        for message in await pulled.fetch(100, timeout=1):
            await message.ack()

    await _repeat(act, pause_s)


async def _be_slow(server: Server, exporter: NatsClient) -> None:
    """Let a subscriber that reads nothing be closed by the server."""
    wire = await asyncio.to_thread(Wire, ("127.0.0.1", server.client_port))
    wire.send(b'CONNECT {"name":"lazy-reader"}\r\nSUB export.> 1\r\n')
    await asyncio.to_thread(wire.sync)
    while not server.counters.slow_consumers:
        for _ in range(20):
            await exporter.publish("export.part", b"x" * SLOW_BYTES)
        await exporter.flush()
    wire.close()
