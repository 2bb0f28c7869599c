"""Clients of one durable consumer: they note each delivery and each confirmed ack.

Every other message is acknowledged without waiting for an answer. A message is noted before it is
acknowledged, so what the server counts as acknowledged was delivered.
"""

import asyncio
import contextlib

import nats.errors
from nats.aio.msg import Msg

from tests.cluster_proof.clients import FAILURES, PATIENCE_S, PAUSE_S, RoamingClient, uncancelled
from tests.cluster_proof.journal import Delivery, Journal, now_ns
from tests.cluster_proof.publishing import STREAM
from tests.jetstream.behaviour.puller import Puller, sequence_of, status_of

CONSUMER = "READER"
BATCH = 50
EXPIRES_NS = 500_000_000


async def pull(client: RoamingClient, journal: Journal, end: asyncio.Event) -> None:
    """Pull, note and acknowledge until the end."""
    while not end.is_set():
        try:
            with uncancelled():
                await _pull_at_one_server(client, journal, end)
        except FAILURES as error:
            journal.failed(error)
            await client.move()
            await asyncio.sleep(PAUSE_S)


async def _pull_at_one_server(client: RoamingClient, journal: Journal, end: asyncio.Event) -> None:
    nc = await client.connected()
    puller = await Puller.of(nc, STREAM, CONSUMER)
    while not end.is_set():
        await puller.ask(batch=BATCH, expires=EXPIRES_NS)
        messages = await _answers(puller)
        for message in messages:
            journal.deliveries.append(Delivery(sequence_of(message), message.data, now_ns()))
        for message in messages[::2]:
            await nc.publish(message.reply, b"+ACK")
        await asyncio.gather(*(_confirm(puller, message, journal) for message in messages[1::2]))


async def _answers(puller: Puller) -> list[Msg]:
    """Return the messages of a pull request. Raises one of FAILURES if nothing comes."""
    messages: list[Msg] = []
    while len(messages) < BATCH:
        try:
            message = await puller.next(PATIENCE_S)
        except nats.errors.TimeoutError:
            if messages:
                break
            raise
        status = status_of(message)
        if status is None:
            messages.append(message)
        elif status.code == "408":
            break
        elif status.code != "100":
            raise nats.errors.Error(status.line)
    return messages


async def _confirm(puller: Puller, message: Msg, journal: Journal) -> None:
    """Acknowledge and wait for the answer; without one, the message comes again."""
    with contextlib.suppress(nats.errors.TimeoutError, nats.errors.NoRespondersError):
        await puller.nc.request(message.reply, b"+ACK", PATIENCE_S)
        journal.confirmed_ns.setdefault(sequence_of(message), now_ns())
