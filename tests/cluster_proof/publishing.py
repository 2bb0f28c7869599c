"""Publishers; each notes in the journal what it was promised.

one at a time   a message, again and again until it is acknowledged, then the next one
pipelined       many messages at a time, each again and again until it is acknowledged
chained         with the expected last sequence of its subject, which only it publishes to
probe           a message every 20 ms, never again: shows how long nobody is served
"""

import asyncio
import base64
import random
from collections.abc import Sequence

from tests.cluster_proof.clients import FAILURES, PAUSE_S, Refused, RoamingClient, answer_in
from tests.cluster_proof.journal import Journal, Publish, id_in, now_ns, payload_of
from tests.waiting import eventually_within

STREAM = "PROOF"
SUBJECTS = "proof.>"
PACE_S = 0.005
WINDOW = 16
PROBE_S = 0.02
PROBES_MAX = 200
WRONG_LAST_SEQUENCE = (10071, 10164)


class Publisher:
    """What the publishers have in common: a name, a client and numbers."""

    def __init__(self, name: str, client: RoamingClient, journal: Journal) -> None:
        self.name = name
        self.subject = f"proof.{name}"
        self.client = client
        self.journal = journal
        self.count = 0

    def next_publish(self) -> Publish:
        self.count += 1
        return self.journal.begin(f"{self.name}-{self.count}")

    async def try_once(self, publish: Publish, headers: dict[str, str]) -> bool:
        """Return whether the message is acknowledged. Raises Refused."""
        payload = payload_of(publish.message_id)
        try:
            answer = answer_in(await self.client.request(self.subject, payload, headers))
        except FAILURES as error:
            self.journal.failed(error)
            return False
        acknowledge(publish, answer["seq"])
        return True

    async def until_acked(self, publish: Publish) -> None:
        """Publish with a message id until it is acknowledged; the server stores it once."""
        headers = {"Nats-Msg-Id": publish.message_id}
        while True:
            try:
                if await self.try_once(publish, headers):
                    return
            except Refused as error:
                self.journal.failed(error)
            publish.attempts += 1
            await asyncio.sleep(PAUSE_S)


def acknowledge(publish: Publish, sequence: int) -> None:
    publish.acked_ns, publish.sequence = now_ns(), sequence


async def one_at_a_time(publisher: Publisher, end: asyncio.Event) -> None:
    while not end.is_set():
        await publisher.until_acked(publisher.next_publish())
        await asyncio.sleep(PACE_S)


async def pipelined(publisher: Publisher, end: asyncio.Event) -> None:
    async def one_after_another() -> None:
        while not end.is_set():
            await publisher.until_acked(publisher.next_publish())
            await asyncio.sleep(WINDOW * PACE_S)

    await asyncio.gather(*(one_after_another() for _ in range(WINDOW)))


async def chained(publisher: Publisher, end: asyncio.Event) -> None:
    """Publish each message only if the one before is the last of the subject.

    After an unknown outcome the last message tells whether the publish was stored. The same publish
    is repeated with the same expectation, so it is stored once.
    """
    last = 0
    while not end.is_set():
        publish = publisher.next_publish()
        while not publish.acked_ns:
            headers = {"Nats-Expected-Last-Subject-Sequence": str(last)}
            try:
                await publisher.try_once(publish, headers)
            except Refused as error:
                publisher.journal.failed(error)
                if error.code in WRONG_LAST_SEQUENCE:
                    await _ask_whether_stored(publisher, publish)
            publish.attempts += 1
            await asyncio.sleep(PACE_S)
        last = publish.sequence


async def _ask_whether_stored(publisher: Publisher, publish: Publish) -> None:
    try:
        answer = await publisher.client.api(
            f"STREAM.MSG.GET.{STREAM}", last_by_subj=publisher.subject
        )
    except (Refused, *FAILURES):
        return
    message = answer["message"]
    if id_in(base64.b64decode(message["data"])) == publish.message_id:
        acknowledge(publish, message["seq"])


class Probe:
    """Publishes all the time at each server, and tells when somebody was served again."""

    def __init__(self, urls: Sequence[str], journal: Journal, chance: random.Random) -> None:
        self.publishers = [
            Publisher(f"probe{at}", RoamingClient([url], chance), journal)
            for at, url in enumerate(urls)
        ]
        self._under_way: set[asyncio.Task[None]] = set()
        self._acked: list[Publish] = []

    async def run(self, end: asyncio.Event) -> None:
        while not end.is_set():
            for publisher in self.publishers:
                if len(self._under_way) < PROBES_MAX:
                    task = asyncio.ensure_future(self._one(publisher))
                    self._under_way.add(task)
                    task.add_done_callback(self._under_way.discard)
                await asyncio.sleep(PROBE_S)
        await asyncio.gather(*self._under_way)

    async def _one(self, publisher: Publisher) -> None:
        publish = publisher.next_publish()
        try:
            if await publisher.try_once(publish, {}):
                self._acked.append(publish)
        except Refused as error:
            publisher.journal.failed(error)

    async def recovery_s(self, since_ns: int, deadline_s: float) -> float:
        """Wait for an acknowledged publish that began after a moment; return how long it took."""

        def served() -> list[int]:
            return [each.acked_ns for each in self._acked if each.called_ns > since_ns]

        await eventually_within(served, deadline_s)
        return (min(served()) - since_ns) / 1e9
