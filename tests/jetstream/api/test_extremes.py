"""Every field of every request at its extremes, then a restart.

Answered requests hold after the restart, and refused ones leave nothing that disturbs a start. Each
request that succeeds creates an asset with its own name, so that one restart checks all of them.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from natsd.jetstream.api.table import ROUTES, Route
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.base import Model
from natsd.jetstream.models.requests import (
    ConsumerGetNextRequest,
    CreateConsumerRequest,
    StreamConfigRequest,
    StreamMsgGetRequest,
)
from tests.jetstream.api.extremes import bodies_of, fields_of, values_of, with_value
from tests.jetstream.serving import account_of, ask, publish, serving
from tests.store.crash import TORTURE

Json = dict[str, Any]

UNBOUNDED = {"max_file_store": 2**63 - 1, "max_memory_store": 2**63 - 1}
NAMED_OTHERWISE = frozenset(" .*>\r\n\x00\x7f")
GONE_SOON_NS = 10**12
FEW = 16
"""Of tests that take long, one in so many cases runs."""
CONSUMERS: dict[str, Json] = {
    "pull": {"ack_policy": "explicit"},
    "push": {"deliver_subject": "d", "idle_heartbeat": 10**9},
    "durable": {"ack_policy": "explicit", "durable_name": "D"},
    "pinned": {
        "ack_policy": "explicit",
        "priority_policy": "pinned_client",
        "priority_groups": ["g"],
    },
}


class Requester:
    """A client that fails on an `internal error` and on failures behind an answer."""

    def __init__(self, jetstream: JetStream) -> None:
        self.jetstream = jetstream
        self.failures: list[Json] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.failures.append(context))

    async def __call__(self, subject: str, body: Any = None) -> Json:
        data = b"" if body is None else json.dumps(body).encode()
        ((_, text),) = await ask(self.jetstream, f"$JS.API.{subject}", data)
        answer: Json = json.loads(text)
        told = subject, data[:500], answer
        assert "internal error" not in answer.get("error", {}).get("description", ""), told
        assert not self.failures, (self.failures, told)
        return answer

    async def accepts(self, subject: str, body: Any = None) -> bool:
        return "error" not in await self(subject, body)

    async def assets(self) -> dict[str, Json]:
        """Return the configurations of all assets that a restart must bring back."""
        account = account_of(self.jetstream)
        assert not account.offline
        found: dict[str, Json] = {}
        for name, stream in sorted(account.streams.items()):
            if not stream.is_filed:
                continue
            found[name] = (await self(f"STREAM.INFO.{name}"))["config"]
            for consumer in sorted(stream.consumers):
                config = (await self(f"CONSUMER.INFO.{name}.{consumer}")).get("config", {})
                may_go = 0 < config.get("inactive_threshold", 1) < GONE_SOON_NS
                if not (may_go or config.get("mem_storage")):
                    found[f"{name} > {consumer}"] = config
        return found


@asynccontextmanager
async def then_restarted(directory: Path) -> AsyncIterator[Requester]:
    """Yield a requester; at the end, check that a restarted server has all of its assets."""
    async with serving(directory, **UNBOUNDED) as jetstream:
        request = Requester(jetstream)
        yield request
        expected = await request.assets()
    async with serving(directory, **UNBOUNDED) as jetstream:
        assert await Requester(jetstream).assets() == expected


def plain_stream(name: str) -> Json:
    return {"name": name, "subjects": [f"{name}.>"], "allow_direct": True}


def name_in(value: object, otherwise: str) -> str:
    """Return the body's name of its asset if a subject can carry it, else `otherwise`."""
    is_token = isinstance(value, str) and value.isascii() and NAMED_OTHERWISE.isdisjoint(value)
    return str(value) if is_token and value and len(str(value)) < 1000 else otherwise


async def test_streams_that_are_created(tmp_path: Path) -> None:
    bodies = enumerate(bodies_of(StreamConfigRequest, plain_stream("")))
    async with then_restarted(tmp_path) as request:
        for number, (path, body) in bodies:
            name = name_in(body["name"] if path == ("name",) else f"S{number}", f"S{number}")
            if path != ("name",):
                body["name"] = name
            if path[0] != "subjects":
                body["subjects"] = [f"{name}.>"]
            await request(f"STREAM.CREATE.{name}", body)


async def test_streams_that_are_updated(tmp_path: Path) -> None:
    await update_each(tmp_path, bodies_of(StreamConfigRequest, plain_stream("")))


async def update_each(directory: Path, bodies: Iterator[tuple[Any, Json]]) -> None:
    number = 0
    async with then_restarted(directory) as request:
        await request("STREAM.CREATE.S0", plain_stream("S0"))
        for path, body in bodies:
            name = f"S{number}"
            if path != ("name",):
                body["name"] = name
            if path[0] != "subjects":
                body["subjects"] = [f"{name}.>"]
            if await request.accepts(f"STREAM.UPDATE.{name}", body):
                number += 1
                assert await request.accepts(f"STREAM.CREATE.S{number}", plain_stream(f"S{number}"))


@pytest.mark.parametrize("kind", CONSUMERS)
async def test_consumers(tmp_path: Path, kind: str) -> None:
    """Consumers are created, and existing ones are updated."""
    base = {"stream_name": "S", "config": CONSUMERS[kind]}
    async with then_restarted(tmp_path) as request:
        await request("STREAM.CREATE.S", plain_stream("S"))
        bodies = [body for _, body in bodies_of(CreateConsumerRequest, base)]
        for number, body in enumerate(bodies if kind == "pull" else bodies[::4]):
            config = body["config"] if isinstance(body["config"], dict) else {}
            name = name_in(config.get("name") or config.get("durable_name"), f"C{number}")
            await request(f"CONSUMER.CREATE.S.{name}", body)
            if number % FEW == 0:
                await request("CONSUMER.CREATE.S", body)
                await request(f"CONSUMER.DURABLE.CREATE.S.{name}", body)


async def test_consumers_that_are_updated(tmp_path: Path) -> None:
    base = {"stream_name": "S", "config": CONSUMERS["pull"]}
    number = 0
    async with then_restarted(tmp_path) as request:
        await request("STREAM.CREATE.S", plain_stream("S"))
        for _, body in bodies_of(CreateConsumerRequest, base):
            name = f"C{number}"
            plain = {"stream_name": "S", "config": {**CONSUMERS["pull"], "durable_name": name}}
            await request(f"CONSUMER.CREATE.S.{name}", plain)
            if isinstance(body["config"], dict):
                body["config"].setdefault("durable_name", name)
            number += await request.accepts(f"CONSUMER.CREATE.S.{name}", body)


def other_routes() -> list[Route]:
    others = ("STREAM.CREATE", "STREAM.UPDATE", "CONSUMER.CREATE", "CONSUMER.DURABLE", "ACCOUNT")
    here = [each for each in ROUTES if each.handler and not each.needs_cluster]
    return [each for each in here if not each.subject.startswith(others)]


@pytest.mark.parametrize("route", other_routes(), ids=lambda route: route.subject)
async def test_everything_else(tmp_path: Path, route: Route) -> None:
    """Requests about an existing stream and consumer; a restore is of a stream that is missing."""
    is_restore = route.subject.startswith("STREAM.RESTORE")
    tokens = iter(("N" if is_restore else "S", "C"))
    subject = ".".join(next(tokens) if t in "*>" else t for t in route.subject.split("."))
    durable = {"durable_name": "C", "ack_policy": "explicit"}
    bodies = [body for _, body in bodies_of(route.request, {})]
    async with then_restarted(tmp_path) as request:
        await request("STREAM.CREATE.S", plain_stream("S"))
        await request("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": durable})
        for body in ({}, *(bodies[::FEW] if is_restore else bodies)):
            await request(subject, body)
            await account_of(request.jetstream).end_transfers()


@pytest.mark.parametrize(
    ("subject", "model"),
    [
        ("DIRECT.GET.S", StreamMsgGetRequest),
        ("CONSUMER.MSG.NEXT.S.C", ConsumerGetNextRequest),
    ],
)
async def test_what_streams_and_consumers_serve(
    tmp_path: Path, subject: str, model: type[Model]
) -> None:
    """No direct get or pull request makes the server fail, and later requests are answered."""
    async with then_restarted(tmp_path) as request:
        await request("STREAM.CREATE.S", plain_stream("S"))
        await publish(request.jetstream, "S.a", b"payload")
        durable = {"durable_name": "C", "ack_policy": "none", "max_waiting": 10**6}
        await request("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": durable})
        client = account_of(request.jetstream).account.internal_client
        for _, body in bodies_of(model, {"seq": 1} if "DIRECT" in subject else {"no_wait": True}):
            client.publish(f"$JS.API.{subject}", json.dumps(body).encode(), reply="nobody")
            await asyncio.sleep(0)
            assert not request.failures, body
        last = b'{"seq":1}' if "DIRECT" in subject else b'{"no_wait":true}'
        ((headers, _),) = await ask(request.jetstream, f"$JS.API.{subject}", last)
        assert not headers or headers.startswith(b"NATS/1.0")
        assert not request.failures


@pytest.mark.torture
async def test_several_fields_at_once(tmp_path: Path) -> None:
    """Some fields of a stream and of a consumer, chosen by a seed, each have an extreme value."""
    async with then_restarted(tmp_path) as request:
        for seed in range(100 * TORTURE):
            name, chance = f"S{seed}", random.Random(seed)
            stream = strange(StreamConfigRequest, plain_stream(name), chance)
            stream["name"] = name
            changed = {**strange(StreamConfigRequest, plain_stream(name), chance), "name": name}
            base = {"stream_name": name, "config": chance.choice([*CONSUMERS.values()])}
            consumer = strange(CreateConsumerRequest, base, chance)
            if not await request.accepts(f"STREAM.CREATE.{name}", stream):
                await request(f"STREAM.CREATE.{name}", plain_stream(name))
            await request(f"CONSUMER.CREATE.{name}.D", consumer)
            await request(f"STREAM.UPDATE.{name}", changed)
            await request(f"CONSUMER.CREATE.{name}.D", consumer)


def strange(model: Any, base: Json, chance: random.Random) -> Json:
    body: Json = base
    for path, kind in chance.sample([*fields_of(model)], 3):
        body = with_value(body, path, chance.choice([*values_of(kind)]))
    return body
