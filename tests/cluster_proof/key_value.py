"""Clients that compare and set keys, as a KV bucket does it: a revision is a stream sequence.

Values are numbers, each written at most once. Reads ask the leader, which may be one that does not
know yet that it was replaced: so they are judged apart (check.py).
"""

import asyncio
import base64
import random
from itertools import count

from tests.cluster_proof.clients import FAILURES, PAUSE_S, Refused, RoamingClient, answer_in
from tests.cluster_proof.journal import Journal, KeyWrite, now_ns
from tests.sim.linearizability import Operation

BUCKET = "KV_PROOF"
SUBJECT = "$KV.PROOF"
KEYS = ("red", "blue")
NO_VALUE = 0
PACE_S = 0.01
WRONG_LAST_SEQUENCE = (10071, 10164)


class KeyClient:
    """One client; it knows of each key the revision and value that it saw last."""

    values = count(1)

    def __init__(self, client: RoamingClient, journal: Journal, chance: random.Random) -> None:
        self.client, self.journal, self.chance = client, journal, chance
        self.known = dict.fromkeys(KEYS, (0, NO_VALUE))

    async def run(self, end: asyncio.Event) -> None:
        while not end.is_set():
            key = self.chance.choice(KEYS)
            step = self.read if self.chance.random() < 0.3 else self.compare_and_set
            await step(key)
            await asyncio.sleep(PACE_S)

    async def compare_and_set(self, key: str) -> None:
        revision, value = self.known[key]
        write = KeyWrite(key, next(self.values), revision, value, now_ns())
        self.journal.key_writes.append(write)
        headers = {"Nats-Expected-Last-Subject-Sequence": str(revision)}
        data = str(write.value).encode()
        try:
            answer = answer_in(await self.client.request(f"{SUBJECT}.{key}", data, headers))
        except Refused as error:
            if error.code in WRONG_LAST_SEQUENCE:
                write.returned_ns, write.is_refused = now_ns(), True
            self.journal.failed(error)
            await self.read(key)
        except FAILURES as error:
            self.journal.failed(error)
            await asyncio.sleep(PAUSE_S)
            await self.read(key)
        else:
            write.returned_ns, write.revision = now_ns(), answer["seq"]
            self.known[key] = write.revision, write.value

    async def read(self, key: str) -> None:
        called_ns = now_ns()
        try:
            answer = await self.client.api(
                f"STREAM.MSG.GET.{BUCKET}", last_by_subj=f"{SUBJECT}.{key}"
            )
        except (*FAILURES, Refused) as error:
            self.journal.failed(error)
            return
        message = answer["message"]
        value = int(base64.b64decode(message["data"]))
        self.known[key] = message["seq"], value
        operation = Operation(called_ns, now_ns(), "read", 0, value, 0)
        self.journal.key_reads.setdefault(key, []).append(operation)
