"""Advisories of a consumer about single messages, if there is a subscriber."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import cast

import pytest

from natsd.accounts import Account
from natsd.core.network import Reactor
from natsd.jetstream.account import JetStreamAccount
from natsd.jetstream.consumer.events import ConsumerEvents
from natsd.jetstream.events import Events
from tests.waiting import Eventually

SUBJECT = "$JS.EVENT.METRIC.CONSUMER.ACK.S.C"


@pytest.fixture
async def account() -> AsyncIterator[Account]:
    failures: list[str] = []
    reactor = Reactor(asyncio.get_running_loop(), failures.append)
    account = Account("ACC", reactor)
    yield account
    account.close()
    reactor.close()
    assert failures == []


def events_of(
    account: Account, random_bytes: Callable[[int], bytes], domain: str = ""
) -> ConsumerEvents:
    events = Events(domain=domain, clock=lambda: 1_500_000_000, random_bytes=random_bytes)
    owner = SimpleNamespace(account=account, jetstream=SimpleNamespace(events=events))
    return ConsumerEvents(cast(JetStreamAccount, owner), "S", "C")


async def test_an_ack_that_was_chosen_is_measured(account: Account, eventually: Eventually) -> None:
    heard: list[bytes] = []
    account.internal_client.subscribe(SUBJECT, lambda *message: heard.append(message[3]))
    events_of(account, bytes, "hub").sampled(7, 3, 2, 1_234)
    await eventually(lambda: heard)
    assert json.loads(heard[0]) == {
        "type": "io.nats.jetstream.metric.v1.consumer_ack",
        "id": "A" * 20,
        "timestamp": "1970-01-01T00:00:01.5Z",
        "stream": "S",
        "consumer": "C",
        "consumer_seq": 3,
        "stream_seq": 7,
        "ack_time": 1_234,
        "deliveries": 2,
        "domain": "hub",
    }


async def test_nothing_is_made_for_nobody(account: Account) -> None:
    def never(_count: int) -> bytes:
        raise AssertionError

    events_of(account, never).sampled(7, 3, 2, 1_234)


MESSAGE = {"stream": "S", "consumer": "C"}
TELL: dict[str, tuple[Callable[[ConsumerEvents], None], dict[str, object]]] = {
    "MAX_DELIVERIES": (
        lambda events: events.max_deliveries(7, 3),
        {"stream_seq": 7, "deliveries": 3},
    ),
    "MSG_NAKED": (
        lambda events: events.nacked(7, 9, 2),
        {"consumer_seq": 9, "stream_seq": 7, "deliveries": 2},
    ),
    "MSG_TERMINATED": (
        lambda events: events.terminated(7, 9, 2, ""),
        {"consumer_seq": 9, "stream_seq": 7, "deliveries": 2},
    ),
}


@pytest.mark.parametrize("event", TELL)
async def test_what_became_of_a_message(
    account: Account, event: str, eventually: Eventually
) -> None:
    heard: list[bytes] = []
    subject = f"$JS.EVENT.ADVISORY.CONSUMER.{event}.S.C"
    account.internal_client.subscribe(subject, lambda *message: heard.append(message[3]))
    tell, fields = TELL[event]
    tell(events_of(account, bytes))
    await eventually(lambda: heard)
    told = json.loads(heard[0])
    assert {name: told[name] for name in list(told)[3:]} == MESSAGE | fields
