"""Snapshots with right checksums and false contents: each is refused whole, or harmless.

Restored data is published, delivered and reported like all other data: nothing in it may begin a
line of the protocol, stop a start, or take more memory than its size.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.snapshot.offline import NotPossible, read_snapshot
from natsd.store.block.blocks import MsgBlock, Scan
from natsd.store.crypto.keys import OperatorKeys
from natsd.store.disk.real_disk import RealDisk
from natsd.store.errors import DamagedEncoding, StoreError
from tests.jetstream.serving import ACCOUNT, account_of, create, publish, serving
from tests.jetstream.snapshot.hostile import (
    Entry,
    Record,
    block_of,
    consumer_entries,
    messages_of,
    snapshot_of,
    stream_entry,
    whole,
)
from tests.jetstream.snapshot.test_restoring import request, restore, snapshots_of
from tests.store.crash import TORTURE
from tests.waiting import eventually_within

WORD = re.compile(rb"[^ \t\r\n]+")
GOOD = Record(b"s.1")

SUBJECTS = (
    b'x\r\nINFO {"forged":true}\r\n',
    b"s.a b",
    b"s.\tb",
    b"s.\n",
    b"s.\r",
    b"",
    b".",
    b"s..a",
    b".s",
    b"s.",
)
CONSUMERS: dict[str, list[Entry]] = {
    "a line end in its deliver subject": consumer_entries(deliver_subject="d\r\nINFO {}"),
    "a line end in its name": consumer_entries("C\r\nINFO {}"),
    "a name that is a way out": consumer_entries(".."),
    "another name in its configuration": consumer_entries("C", durable_name="D"),
    "filters that overlap": consumer_entries(filter_subjects=["s.>", "s.a"]),
    "an age of a thousand years": consumer_entries(inactive_threshold=2**63),
    "twice the same": [*consumer_entries(), *consumer_entries(number=1)],
    "no state": consumer_entries()[:1],
    "no configuration": consumer_entries()[1:],
    "a state of nothing": [consumer_entries()[0], ("obs/0/state.db", b"")],
}
STATES: dict[str, dict[str, Any]] = {
    "more messages": {"msgs": 3},
    "fewer messages": {"msgs": 1},
    "a negative count": {"msgs": -1},
    "other bytes": {"bytes": 0},
    "an end before its messages": {"last_sequence": 1},
    "an end that leaves no room": {"last_sequence": 2**64 - 1},
    "an end that is no number": {"last_sequence": 10**30},
    "a time that is none": {"last_time_ns": 2**64},
}
OUT_OF_PLACE: dict[str, list[Entry]] = {
    "nothing": [],
    "no messages": [stream_entry()],
    "messages first": messages_of([GOOD]),
    "two streams": [stream_entry(), stream_entry(), *messages_of([GOOD])],
    "messages behind the end": [
        stream_entry(),
        *messages_of([GOOD]),
        ("msgs/000002.blk", block_of([Record(b"s.2", sequence=2)])[0]),
    ],
    "a consumer behind the end": [stream_entry(), *messages_of([GOOD]), *consumer_entries()],
    "sequences that do not ascend": [
        stream_entry(),
        ("msgs/000001.blk", block_of([Record(b"s.1", sequence=5)])[0]),
        ("msgs/000002.blk", block_of([Record(b"s.2", sequence=5)])[0]),
    ],
    "a file that is none": [stream_entry(), ("msgs/../../evil", b""), *messages_of([GOOD])],
    "a path": [stream_entry(), ("/etc/passwd", b"x"), *messages_of([GOOD])],
    "another stream": [stream_entry(name="OTHER"), *messages_of([GOOD])],
    "one in memory": [stream_entry(storage="memory", name="OTHER"), *messages_of([GOOD])],
    "what waits where nothing may": [
        stream_entry(),
        *((name.replace("msgs", "delayed"), body) for name, body in messages_of([GOOD])),
        *messages_of([GOOD]),
    ],
    "a block that is none": [stream_entry(), ("msgs/000001.blk", bytes(100_000))],
    "an empty block": [stream_entry(), ("msgs/000001.blk", b"")],
}


async def try_restore(jetstream: JetStream, data: bytes) -> dict[str, Any]:
    response = {"config": {"name": "S", "subjects": ["s.>"]}, "state": {}}
    return await restore(jetstream, response, data, size=100_000)


async def refused(directory: Path, data: bytes) -> str:
    """Return the reason of the refusal; check that nothing is left of it, also at a start."""
    async with serving(directory) as jetstream:
        answer = await try_restore(jetstream, data)
        assert "error" in answer, answer
        assert "internal error" not in answer["error"]["description"]
        account = account_of(jetstream)
        assert not account.streams and not snapshots_of(account)
        assert "error" not in await request(jetstream, "STREAM.CREATE.S", {"name": "S"})
    return str(answer["error"]["description"])


def test_what_is_well_formed_is_no_damage() -> None:
    """The maker makes valid blocks, so that snapshots are refused for their false contents only."""
    image, size = block_of([GOOD, Record(b"s.2", b"NATS/1.0\r\nA: b\r\n\r\n", b"x")])
    scan = Scan(image)
    assert scan.readable and not scan.damage
    assert MsgBlock.from_scan(scan, 1 << 20).live_bytes == size


async def test_an_honest_one_is_restored(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        answer = await try_restore(jetstream, whole([GOOD, GOOD], *consumer_entries()))
        assert answer["state"]["messages"] == 2
        assert account_of(jetstream).stream("S").consumer("C")


@pytest.mark.parametrize("subject", SUBJECTS)
async def test_subjects_that_no_client_could_publish_to(tmp_path: Path, subject: bytes) -> None:
    """Such subjects are refused: one with a line end reached a subscriber as a forged INFO."""
    await refused(tmp_path, whole([GOOD, Record(subject)]))


NO_HEADERS = (
    b"\r\n\r\n",
    b"short",
    b"x" * 99,
    b"MSG s 1 3\r\nabc\r\n",
    b"nats/1.0\r\nA: b\r\n\r\n",
)


@pytest.mark.parametrize("headers", NO_HEADERS)
async def test_headers_that_are_no_header_block_are_not_restored(
    tmp_path: Path, headers: bytes
) -> None:
    """The message is restored without the invalid header block; valid blocks are restored."""
    block = b"NATS/1.0\r\nA: b\r\n\r\n"
    records = [Record(b"s.1", headers, b"data"), Record(b"s.2", block)]
    async with serving(tmp_path) as jetstream:
        answer = await try_restore(jetstream, whole(records))
        assert answer["state"]["messages"] == 2
        store = account_of(jetstream).stream("S").store
        first, second = await store.load(1), await store.load(2)
        assert (first.headers, first.data, second.headers) == (None, b"data", block)


@pytest.mark.parametrize("headers", NO_HEADERS)
async def test_headers_that_are_no_header_block_are_not_stored(
    tmp_path: Path, headers: bytes
) -> None:
    """Invalid header blocks of clients are not stored, nor those of a copied stream."""
    async with serving(tmp_path) as jetstream:
        origin = await create(jetstream, "S", subjects=["s.>"])
        assert (await publish(jetstream, "s.1", b"data", headers=headers))["seq"] == 1
        assert (await origin.store.load(1)).headers is None
        origin.store.append("s.2", headers, b"data", 1)  # as a faulty writer would store it
        await origin.store.synced()
        mirror = await create(jetstream, "M", mirror={"name": "S"})
        copy = await create(jetstream, "C", sources=[{"name": "S"}])
        await eventually_within(lambda: mirror.store.log.msgs == copy.store.log.msgs == 2)
        assert (await mirror.store.load(2)).headers is None
        for number in (1, 2):
            line = f"Nats-Stream-Source: S {number} > > s.{number}"
            assert (await copy.store.load(number)).headers == f"NATS/1.0\r\n{line}\r\n\r\n".encode()


@pytest.mark.parametrize("kind", CONSUMERS)
async def test_consumers(tmp_path: Path, kind: str) -> None:
    await refused(tmp_path, whole([GOOD], *CONSUMERS[kind]))


@pytest.mark.parametrize("kind", STATES)
async def test_states(tmp_path: Path, kind: str) -> None:
    records = [GOOD, GOOD]
    await refused(tmp_path, snapshot_of(stream_entry(), *messages_of(records, **STATES[kind])))


@pytest.mark.parametrize("kind", OUT_OF_PLACE)
async def test_entries_out_of_place(tmp_path: Path, kind: str) -> None:
    await refused(tmp_path, snapshot_of(*OUT_OF_PLACE[kind]))


@pytest.mark.parametrize("subject", SUBJECTS)
def test_such_a_record_on_the_disk_is_damage(subject: bytes) -> None:
    """A stored record with such a subject is damage; the messages around it are there."""
    image, _ = block_of([GOOD, Record(subject), Record(b"s.3")])
    scan = Scan(image)
    assert [(each.first_sequence, each.last_sequence) for each in scan.damage] == [(2, 2)]
    assert MsgBlock.from_scan(scan, 1 << 20).live_sequences() == [1, 3]


CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "a subject of two words": {"subjects": ["s.> x"]},
    "a republished line": {"republish": {"src": ">", "dest": "r\r\nINFO {}\r\n"}},
    "a transformed line": {"subject_transform": {"src": ">", "dest": "t\r\nINFO {}\r\n"}},
    "no name": {"name": ""},
    "a mirror of nothing": {"mirror": {"name": ""}},
}


@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_offline_configurations_keep_to_the_rules(tmp_path: Path, kind: str) -> None:
    """An offline restore checks the snapshot's configuration, since no request carries one."""
    data = snapshot_of(stream_entry(**CONFIGURATIONS[kind]), *messages_of([GOOD]))
    refused_offline(tmp_path, data)


@pytest.mark.parametrize("kind", CONSUMERS)
def test_offline_consumers_keep_to_the_rules(tmp_path: Path, kind: str) -> None:
    refused_offline(tmp_path, whole([GOOD], *CONSUMERS[kind]))


def refused_offline(directory: Path, data: bytes) -> None:
    path, root = directory / "snapshot", directory / "store"
    path.write_bytes(data)
    (root / ACCOUNT).mkdir(parents=True)
    with path.open("rb") as snapshot, pytest.raises((NotPossible, DamagedEncoding, StoreError)):
        read_snapshot(RealDisk(), snapshot, root, ACCOUNT, OperatorKeys(), bytes, lambda *_: None)
    assert not [each for each in root.rglob("*") if each.name in ("S", "meta.json")]


RECORDS = st.builds(
    Record,
    st.one_of(st.sampled_from(SUBJECTS), st.sampled_from([b"s.1", b"s.2", b"other", b"s.*"])),
    st.sampled_from(
        [b"", b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\nNats-TTL: 1\r\n\r\n", b"short", b"x" * 99]
    ),
    st.binary(max_size=20),
    st.just(0),
    st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63), 1_700_000_000_000_000_000]),
    st.sampled_from([0, 1, 2**63 - 1]),
)
ENTRIES = st.one_of(
    st.just([stream_entry()]),
    st.lists(RECORDS, min_size=1, max_size=4).map(messages_of),
    st.sampled_from([*CONSUMERS.values(), *OUT_OF_PLACE.values()]),
    st.tuples(
        st.sampled_from(["meta.json", "ids.db", "msgs/000001.blk", "msgs/state.json", "obs/0/x"]),
        st.binary(max_size=60),
    ).map(lambda entry: [entry]),
)


@settings(max_examples=20 * TORTURE)
@given(parts=st.lists(ENTRIES, max_size=4), begins_well=st.booleans())
def test_whatever_is_in_it(
    tmp_path_factory: pytest.TempPathFactory, parts: list[Sequence[Entry]], begins_well: bool
) -> None:
    """Any snapshot is refused, or gives a stream that is served, before and after a restart."""
    entries = [entry for part in parts for entry in part]
    if begins_well:
        entries = [stream_entry(), *(each for each in entries if each[0] != "meta.json")]
    asyncio.run(restored_or_not(tmp_path_factory.mktemp("hostile"), snapshot_of(*entries)))


async def restored_or_not(directory: Path, data: bytes) -> None:
    async with serving(directory) as jetstream:
        answer = await try_restore(jetstream, data)
        assert "internal error" not in str(answer.get("error"))
        if "error" not in answer:
            await serves(jetstream)
    async with serving(directory) as jetstream:
        assert not account_of(jetstream).offline
        if "error" not in answer:
            await serves(jetstream)


async def serves(jetstream: JetStream) -> None:
    """Check that every delivered subject is one word, and that the stream takes messages."""
    inbox = "inbox"
    client = account_of(jetstream).account.internal_client
    subscription = client.subscribe(inbox, lambda *_: None)
    config = {"deliver_subject": inbox, "ack_policy": "none"}
    body = {"stream_name": "S", "config": config}
    info = await request(jetstream, "CONSUMER.CREATE.S", body)
    assert "error" not in info, info
    assert (await publish(jetstream, "s.new"))["seq"] > 0
    stream = account_of(jetstream).stream("S")
    log = stream.store.log
    for sequence in range(log.first_sequence, log.last_sequence + 1):
        if log.has(sequence):
            message = await stream.store.load(sequence)
            assert WORD.fullmatch(message.subject.encode("utf-8", "surrogateescape"))
            assert message.headers is None or message.headers.startswith(b"NATS/1.0")
    got = await request(jetstream, "STREAM.MSG.GET.S", {"last_by_subj": "s.new"})
    assert got["message"]["subject"] == "s.new"
    client.unsubscribe(subscription)
    await request(jetstream, f"CONSUMER.DELETE.S.{info['name']}", b"")
