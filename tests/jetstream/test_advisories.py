"""Advisories: their contents and subjects, and that none is built without a subscriber.

Each advisory has the members that nats-server sends. It is valid by its JSON schema, except where
nats-server's advisory is not valid either; NOT_BY_SCHEMA names the difference.
"""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from natsd.accounts import SYSTEM_ACCOUNT, Account
from natsd.jetstream import advisories, events
from natsd.jetstream.account import JetStreamAccount
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.stream import StreamState
from tests.jetstream.api.schemas import SCHEMAS, schema_of
from tests.jetstream.serving import account_of, serving
from tests.waiting import Eventually

PREFIX = "$JS.EVENT.ADVISORY"
CLIENT = {"acc": "$G", "name": "backup"}
SECOND_NS = 1_000_000_000

NOT_BY_SCHEMA = {
    "server_rescued": "only natsd has it",
    "snapshot_create": "the schema has blocks and block_size, nats-server the state",
    "consumer_group_pinned": "the schema asks for a server, and allows none",
    "consumer_group_unpinned": "the schema asks for a server, and allows none",
}


def check(event: dict[str, Any]) -> None:
    """Check that the event is valid by its schema, if the schema fits."""
    name = event["type"].rpartition(".")[2]
    if SCHEMAS.exists() and name not in NOT_BY_SCHEMA:
        jsonschema.Draft7Validator(schema_of(event["type"])).validate(event)


@pytest.fixture
async def jetstream(tmp_path: Path) -> AsyncIterator[JetStream]:
    async with serving(tmp_path) as jetstream:
        yield jetstream


def told(account: Account, subject: str = f"{PREFIX}.>") -> list[tuple[str, dict[str, Any]]]:
    """Subscribe to advisories and return the list that collects their subjects and events."""
    heard: list[tuple[str, dict[str, Any]]] = []
    account.internal_client.subscribe(
        subject, lambda subject, _reply, _head, data: heard.append((subject, json.loads(data)))
    )
    return heard


EVENTS: dict[str, tuple[Callable[[JetStreamAccount], None], dict[str, Any]]] = {
    "STREAM.BATCH_ABANDONED.S": (
        lambda account: advisories.batch_abandoned(account, "S", "b1", "timeout"),
        {"stream": "S", "batch": "b1", "reason": "timeout"},
    ),
    "STREAM.SNAPSHOT_CREATE.S": (
        lambda account: advisories.snapshot_create(account, "S", StreamState(messages=3), CLIENT),
        {"stream": "S", "state": StreamState(messages=3).model_dump(), "client": CLIENT},
    ),
    "STREAM.SNAPSHOT_COMPLETE.S": (
        lambda account: advisories.snapshot_complete(
            account, "S", SECOND_NS, 2 * SECOND_NS, CLIENT
        ),
        {
            "stream": "S",
            "start": "1970-01-01T00:00:01Z",
            "end": "1970-01-01T00:00:02Z",
            "client": CLIENT,
        },
    ),
    "STREAM.RESTORE_CREATE.S": (
        lambda account: advisories.restore_create(account, "S", CLIENT),
        {"stream": "S", "client": CLIENT},
    ),
    "STREAM.RESTORE_COMPLETE.S": (
        lambda account: advisories.restore_complete(
            account, "S", SECOND_NS, 2 * SECOND_NS, 77, CLIENT
        ),
        {
            "stream": "S",
            "start": "1970-01-01T00:00:01Z",
            "end": "1970-01-01T00:00:02Z",
            "bytes": 77,
            "client": CLIENT,
        },
    ),
    "CONSUMER.PINNED.S.C": (
        lambda account: advisories.group_pinned(account, "S", "C", "A", "id"),
        {"account": "$G", "stream": "S", "consumer": "C", "group": "A", "pinned_id": "id"},
    ),
    "CONSUMER.UNPINNED.S.C": (
        lambda account: advisories.group_unpinned(account, "S", "C", "A", "admin"),
        {"account": "$G", "stream": "S", "consumer": "C", "group": "A", "reason": "admin"},
    ),
    "CONSUMER.PAUSE.S.C": (
        lambda account: advisories.consumer_paused(account, "S", "C", SECOND_NS, is_paused=True),
        {
            "stream": "S",
            "consumer": "C",
            "paused": True,
            "pause_until": "1970-01-01T00:00:01Z",
        },
    ),
}


SYSTEM_EVENTS: dict[str, tuple[Callable[[JetStream], None], dict[str, Any]]] = {
    "API.LIMIT_REACHED": (
        lambda jetstream: advisories.api_limit_reached(jetstream, 7),
        {"server": "natsd", "dropped": 7},
    ),
    "SERVER.OUT_OF_STORAGE": (
        lambda jetstream: advisories.server_out_of_storage(jetstream, "S"),
        {"server": "natsd", "server_id": "NAAA", "stream": "S", "cluster": ""},
    ),
    "SERVER.RESCUED": (
        lambda jetstream: advisories.server_rescued(jetstream, "c", {"groups": []}),
        {"server": "natsd", "server_id": "NAAA", "cluster": "c", "groups": []},
    ),
}


@pytest.mark.parametrize("suffix", SYSTEM_EVENTS)
async def test_what_concerns_the_server_is_told_in_the_system_account(
    jetstream: JetStream, suffix: str, eventually: Eventually
) -> None:
    tell, fields = SYSTEM_EVENTS[suffix]
    tell(jetstream)  # nobody subscribes yet
    jetstream.server_name, jetstream.server_id = "natsd", "NAAA"
    system = jetstream.system_account = Account(SYSTEM_ACCOUNT, jetstream.reactor, is_system=True)
    heard = told(system)
    tell(jetstream)
    await eventually(lambda: heard)
    [(subject, event)] = heard
    check(event)
    assert subject == f"{PREFIX}.{suffix}"
    assert {key: event[key] for key in list(event)[3:]} == fields
    system.close()


@pytest.mark.parametrize("suffix", EVENTS)
async def test_who_listens_is_told(
    jetstream: JetStream, suffix: str, eventually: Eventually
) -> None:
    account = account_of(jetstream)
    heard = told(account.account)
    tell, fields = EVENTS[suffix]
    tell(account)
    await eventually(lambda: heard)
    [(subject, event)] = heard
    check(event)
    assert subject == f"{PREFIX}.{suffix}"
    assert list(event)[:3] == ["type", "id", "timestamp"]
    assert {key: event[key] for key in list(event)[3:]} == fields
    assert list(event)[3:] == list(fields)


async def test_nothing_is_built_for_nobody(
    jetstream: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "encode_value", pytest.fail)
    for tell, _ in EVENTS.values():
        tell(account_of(jetstream))


async def test_the_system_account_hears_whose_batch_was_abandoned(
    jetstream: JetStream, eventually: Eventually
) -> None:
    system = jetstream.system_account = Account(SYSTEM_ACCOUNT, jetstream.reactor, is_system=True)
    heard = told(system)
    advisories.batch_abandoned(account_of(jetstream), "S", "b1", "large")
    await eventually(lambda: heard)
    [(_, event)] = heard
    check(event)
    assert list(event)[3:] == ["account", "stream", "batch", "reason"]
    assert event["account"] == "$G"
    system.close()
