"""A client at a read replica, which notes what it shows and how old that may be."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import cycle

from nats.aio.client import Client

from tests.cluster_proof import clients
from tests.cluster_proof.clients import FAILURES
from tests.cluster_proof.journal import AgedRead, Journal, now_ns
from tests.cluster_proof.publishing import STREAM

HEADER = "Natsd-Staleness"
PUBLISHERS = ("one", "two", "many")
PACE_S = 0.01
ANSWER_S = 1.0


@contextlib.asynccontextmanager
async def reading(url: str, journal: Journal) -> AsyncIterator[None]:
    """Read from the server all the time."""
    client, end = await clients.connect(url), asyncio.Event()
    task = asyncio.ensure_future(_read(client, journal, end))
    try:
        yield
    finally:  # nats-py hides some cancellations
        end.set()
        await asyncio.gather(task, return_exceptions=True)
        await clients.close(client)


async def _read(client: Client, journal: Journal, end: asyncio.Event) -> None:
    """Ask for the last message of one publisher's subject after the other."""
    for publisher in cycle(PUBLISHERS):
        if end.is_set():
            return
        called_ns = now_ns()
        subject = f"$JS.API.DIRECT.GET.{STREAM}.proof.{publisher}"
        try:
            answer = await client.request(subject, b"", ANSWER_S)
        except FAILURES as error:
            journal.failed(error)
        else:
            headers = answer.headers or {}
            if HEADER in headers:  # otherwise another replica has answered
                age_ns = round(float(headers[HEADER].removesuffix("s")) * 1e9)
                sequence = int(headers.get("Nats-Sequence", 0))
                journal.aged_reads.append(AgedRead(publisher, sequence, called_ns, age_ns))
        await asyncio.sleep(PACE_S)
