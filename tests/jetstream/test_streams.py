"""Streams through the objects that the API calls: create, update, delete, purge, messages, info."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from natsd.jetstream.errors import ApiError, ErrorId
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.requests import StreamMsgGetRequest
from natsd.jetstream.models.stream import DiscardPolicy, Storage, StreamConfig
from tests.jetstream.serving import account_of, create, publish, serving, update


@pytest.fixture
async def jetstream(tmp_path: Path) -> AsyncIterator[JetStream]:
    async with serving(tmp_path) as jetstream:
        yield jetstream


class refused:
    """A block that raises this error of the API."""

    def __init__(self, error_id: ErrorId, text: str = "") -> None:
        self.error_id, self.text = error_id, text

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type | None, error: BaseException | None, _trace: object) -> bool:
        if not isinstance(error, ApiError):
            return False
        assert error.error_id is self.error_id, error
        assert not self.text or error.description == self.text
        return True


STORAGES = pytest.mark.parametrize("storage", list(Storage))


@STORAGES
async def test_what_is_published_is_there(jetstream: JetStream, storage: Storage) -> None:
    stream = await create(jetstream, "S", subjects=["s.>"], storage=storage)
    assert await publish(jetstream, "s.1", b"one") == {"stream": "S", "seq": 1}
    assert await publish(jetstream, "s.2", b"two", b"NATS/1.0\r\nA: b\r\n\r\n") == {
        "stream": "S",
        "seq": 2,
    }
    info = await stream.info()
    assert (info.state.messages, info.state.first_seq, info.state.last_seq) == (2, 1, 2)
    assert info.state.num_subjects == 2
    assert info.created <= info.state.first_ts <= info.state.last_ts <= info.ts
    message = await stream.get_message(StreamMsgGetRequest(seq=2))
    assert (message.subject, message.data, message.hdrs) == (
        "s.2",
        b"two",
        b"NATS/1.0\r\nA: b\r\n\r\n",
    )


async def test_defaults_are_filled_in(jetstream: JetStream) -> None:
    stream = await create(jetstream, "S")
    assert stream.config.subjects == ["S"]
    assert (stream.config.max_msgs, stream.config.num_replicas) == (-1, 1)


async def test_the_same_stream_again_is_that_stream(jetstream: JetStream) -> None:
    account, config = account_of(jetstream), StreamConfig(name="S", subjects=["s"])
    first = await account.create_stream(config)
    assert first[1]
    assert await account.create_stream(config) == (first[0], False)
    with refused(ErrorId.JSStreamNameExistErr):
        await account.create_stream(config.model_copy(update={"subjects": ["t"]}))


async def test_many_creates_of_one_name_make_one_stream(jetstream: JetStream) -> None:
    account, config = account_of(jetstream), StreamConfig(name="S")
    made = await asyncio.gather(*(account.create_stream(config) for _ in range(5)))
    assert sum(is_new for _, is_new in made) == 1
    assert len({id(stream) for stream, _ in made}) == 1


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [(["a.>"], ["a.b"]), (["a.b"], ["a.>"]), (["m.*.b"], ["m.a.*"]), (["x", "y"], ["y"])],
)
async def test_subjects_of_two_streams_do_not_overlap(
    jetstream: JetStream, mine: list[str], theirs: list[str]
) -> None:
    await create(jetstream, "A", subjects=mine)
    with refused(ErrorId.JSStreamSubjectOverlapErr):
        await create(jetstream, "B", subjects=theirs)
    other = await create(jetstream, "B", subjects=["other"])
    with refused(ErrorId.JSStreamSubjectOverlapErr):
        await update(other, subjects=["other", *theirs])
    assert other.config.subjects == ["other"]
    await account_of(jetstream).delete_stream("A")
    await update(other, subjects=theirs)
    assert [stream.name for stream in account_of(jetstream).streams_with(theirs[0])] == ["B"]


async def test_of_two_creates_at_once_one_has_the_subject(jetstream: JetStream) -> None:
    made = await asyncio.gather(
        create(jetstream, "A", subjects=["s"]),
        create(jetstream, "B", subjects=["s"]),
        return_exceptions=True,
    )
    errors = [error for error in made if isinstance(error, ApiError)]
    assert [error.error_id for error in errors] == [ErrorId.JSStreamSubjectOverlapErr]


@STORAGES
async def test_a_deleted_stream_is_gone(
    jetstream: JetStream, storage: Storage, tmp_path: Path
) -> None:
    account = account_of(jetstream)
    stream = await create(jetstream, "S", subjects=["s"], storage=storage, max_bytes=1000)
    await publish(jetstream, "s", b"x")
    await account.delete_stream("S")
    with refused(ErrorId.JSStreamNotFoundErr):
        account.stream("S")
    with refused(ErrorId.JSStreamNotFoundErr):
        await account.delete_stream("S")
    assert not stream.directory.exists()
    assert account.info().model_dump() == account.info().model_dump() | {
        "memory": 0,
        "storage": 0,
        "reserved_memory": 0,
        "reserved_storage": 0,
        "streams": 0,
    }
    assert not account.account.sublist.has_interest("s")
    again = await create(jetstream, "S", subjects=["s"], storage=storage)
    assert (await again.info()).state.messages == 0


# Updates (nats-server's `configUpdateCheck`)


async def test_an_update_holds_at_once_and_takes_subjects_over(jetstream: JetStream) -> None:
    stream = await create(jetstream, "S", subjects=["a", "b"])
    for subject in ("a", "a", "b"):
        await publish(jetstream, subject, b"x")
    await update(stream, subjects=["b", "c"], max_msgs=2, description="now")
    assert stream.config.description == "now"
    assert not account_of(jetstream).account.sublist.has_interest("a")
    assert (await publish(jetstream, "c", b"x"))["seq"] == 4
    assert (await stream.info()).state.first_seq == 3


async def test_an_update_that_is_refused_changes_nothing(jetstream: JetStream) -> None:
    stream = await create(jetstream, "S", subjects=["a"])
    before = stream.config
    with refused(ErrorId.JSStreamInvalidConfigF):
        await update(stream, storage=Storage.MEMORY)
    with refused(ErrorId.JSStreamNotFoundErr):
        await account_of(jetstream).update_stream(StreamConfig(name="T"))
    assert stream.config == before


async def test_a_sealed_stream_stays_as_it_is(jetstream: JetStream) -> None:
    stream = await create(jetstream, "S", subjects=["a"])
    await publish(jetstream, "a", b"x")
    await update(stream, sealed=True)
    with refused(ErrorId.JSStreamSealedErr):
        await stream.purge()
    with refused(ErrorId.JSStreamSealedErr):
        await stream.delete_message(1)
    assert (await publish(jetstream, "a", b"y"))["error"]["err_code"] == 10109
    with refused(ErrorId.JSStreamInvalidConfigF):
        await update(stream, sealed=False)


# Messages


@STORAGES
async def test_messages_are_deleted_and_erased(jetstream: JetStream, storage: Storage) -> None:
    stream = await create(jetstream, "S", subjects=["s.*"], storage=storage)
    for number in range(5):
        await publish(jetstream, f"s.{number}", b"secret")
    await stream.delete_message(2, erase=False)
    await stream.delete_message(3)
    with refused(ErrorId.JSSequenceNotFoundErrF, "sequence 3 not found"):
        await stream.delete_message(3)
    for sequence, text in ((0, "no message found"), (99, "stream store EOF")):
        if storage is Storage.FILE:
            with refused(ErrorId.JSStreamMsgDeleteFailedF, text):
                await stream.delete_message(sequence)
        else:
            with refused(ErrorId.JSSequenceNotFoundErrF, f"sequence {sequence} not found"):
                await stream.delete_message(sequence)
    info = await stream.info(deleted_details=True)
    assert (info.state.num_deleted, info.state.deleted) == (2, [2, 3])


async def test_deletes_and_purges_may_be_denied(jetstream: JetStream) -> None:
    stream = await create(jetstream, "S", subjects=["s"], deny_delete=True, deny_purge=True)
    await publish(jetstream, "s", b"x")
    with refused(ErrorId.JSStreamMsgDeleteFailedF, "message delete not permitted"):
        await stream.delete_message(1)
    with refused(ErrorId.JSStreamPurgeFailedF, "stream purge not permitted"):
        await stream.purge()


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        ({}, []),
        ({"filter_subject": "s.a"}, [2, 4]),
        ({"sequence": 3}, [3, 4]),
        ({"keep": 1}, [4]),
        ({"filter_subject": "s.a", "keep": 1}, [2, 3, 4]),
        ({"filter_subject": "s.a", "sequence": 3}, [2, 3, 4]),
        ({"filter_subject": "no..subject"}, [1, 2, 3, 4]),
    ],
)
@STORAGES
async def test_a_purge_takes_what_it_says(
    jetstream: JetStream, storage: Storage, arguments: dict[str, Any], left: list[int]
) -> None:
    stream = await create(jetstream, "S", subjects=["s.*"], storage=storage)
    for subject in ("s.a", "s.b", "s.a", "s.b"):
        await publish(jetstream, subject, b"x")
    assert await stream.purge(**arguments) == 4 - len(left)
    there = []
    for sequence in range(1, 5):
        try:
            await stream.get_message(StreamMsgGetRequest(seq=sequence))
        except ApiError:
            continue
        there.append(sequence)
    assert there == left
    assert (await publish(jetstream, "s.a", b"x"))["seq"] == 5


@STORAGES
async def test_a_purge_may_go_past_the_end(jetstream: JetStream, storage: Storage) -> None:
    stream = await create(jetstream, "S", subjects=["s"], storage=storage)
    await publish(jetstream, "s", b"x")
    assert await stream.purge(sequence=100) == 1
    state = (await stream.info()).state
    assert (state.messages, state.first_seq, state.last_seq) == (0, 100, 99)
    assert (await publish(jetstream, "s", b"x"))["seq"] == 100
    assert (await stream.info()).state.first_seq == 100


async def test_keep_and_sequence_exclude_each_other(jetstream: JetStream) -> None:
    stream = await create(jetstream, "S")
    with refused(ErrorId.JSBadRequestErr):
        await stream.purge(sequence=1, keep=1)


@STORAGES
async def test_messages_are_found_in_each_way(jetstream: JetStream, storage: Storage) -> None:
    stream = await create(jetstream, "S", subjects=["s.*"], storage=storage)
    for subject in ("s.a", "s.b", "s.a"):
        await publish(jetstream, subject, b"x")
    await stream.delete_message(1)
    start = (await stream.info()).state.last_ts
    for request, expected in (
        (StreamMsgGetRequest(seq=2), 2),
        (StreamMsgGetRequest(last_by_subj="s.a"), 3),
        (StreamMsgGetRequest(last_by_subj="s.*"), 3),
        (StreamMsgGetRequest(next_by_subj="s.*"), 2),
        (StreamMsgGetRequest(next_by_subj="s.a", seq=2), 3),
        (StreamMsgGetRequest(next_by_subj="s.a", start_time=1), 3),
        (StreamMsgGetRequest(start_time=start), 3),
        (StreamMsgGetRequest(start_time=1), 2),
    ):
        assert (await stream.get_message(request)).seq == expected, request


@pytest.mark.parametrize(
    "request_",
    [
        StreamMsgGetRequest(seq=1),
        StreamMsgGetRequest(seq=9),
        StreamMsgGetRequest(last_by_subj="other"),
        StreamMsgGetRequest(last_by_subj="not..one"),
        StreamMsgGetRequest(next_by_subj="not..one"),
        StreamMsgGetRequest(next_by_subj="s.a", seq=3),
        StreamMsgGetRequest(start_time=2**62),
    ],
)
async def test_what_is_not_there_is_not_found(
    jetstream: JetStream, request_: StreamMsgGetRequest
) -> None:
    stream = await create(jetstream, "S", subjects=["s.*"])
    await publish(jetstream, "s.a", b"x")
    await publish(jetstream, "s.a", b"x")
    await stream.delete_message(1)
    with refused(ErrorId.JSNoMessageFoundErr):
        await stream.get_message(request_)


@pytest.mark.parametrize(
    "request_",
    [
        StreamMsgGetRequest(),
        StreamMsgGetRequest(seq=1, last_by_subj="a"),
        StreamMsgGetRequest(seq=1, start_time=1),
        StreamMsgGetRequest(last_by_subj="a", start_time=1),
        StreamMsgGetRequest(last_by_subj="a", next_by_subj="a"),
        StreamMsgGetRequest(seq=1, batch=2),
        StreamMsgGetRequest(seq=1, max_bytes=2),
    ],
)
async def test_requests_that_contradict_themselves(
    jetstream: JetStream, request_: StreamMsgGetRequest
) -> None:
    stream = await create(jetstream, "S")
    with refused(ErrorId.JSBadRequestErr):
        await stream.get_message(request_)


async def test_headers_can_be_left_out(jetstream: JetStream) -> None:
    stream = await create(jetstream, "S", subjects=["s"])
    await publish(jetstream, "s", b"x", b"NATS/1.0\r\nA: b\r\n\r\n")
    message = await stream.get_message(StreamMsgGetRequest(seq=1, no_hdr=True))
    assert (message.hdrs, message.data) == (b"", b"x")


# Info


async def test_subjects_are_counted(jetstream: JetStream) -> None:
    stream = await create(jetstream, "S", subjects=["s.*"])
    for subject in ("s.a", "s.b", "s.a"):
        await publish(jetstream, subject, b"x")
    info, total = await stream.info_page(subjects_filter="s.*")
    assert (info.state.subjects, total) == ({"s.a": 2, "s.b": 1}, 2)
    info, total = await stream.info_page(subjects_filter=">", offset=1)
    assert (info.state.subjects, total) == ({"s.b": 1}, 2)
    info, total = await stream.info_page(subjects_filter="not..one")
    assert (info.state.subjects, total) == ({}, 0)


async def test_subjects_come_in_pages(
    jetstream: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("natsd.jetstream.stream.info.SUBJECTS_MAX", 7)
    monkeypatch.setattr("natsd.jetstream.stream.info.SKIPPED_AT_ONCE", 3)
    stream = await create(jetstream, "S", subjects=["s.>"])
    subjects = sorted({f"s.{number % 13}.{number * 7919 % 101}" for number in range(40)})
    for subject in reversed(subjects):
        await publish(jetstream, subject)
    pages: list[str] = []
    while len(pages) < len(subjects):
        info, total = await stream.info_page(subjects_filter="s.>", offset=len(pages))
        assert (total, len(info.state.subjects)) == (len(subjects), min(7, total - len(pages)))
        pages += info.state.subjects
    assert pages == subjects
    beyond, total = await stream.info_page(subjects_filter="s.>", offset=1000)
    assert (beyond.state.subjects, total) == ({}, len(subjects))


async def test_a_first_sequence_is_begun_with(jetstream: JetStream) -> None:
    stream = await create(jetstream, "S", subjects=["s"], first_seq=100)
    assert (await publish(jetstream, "s", b"x"))["seq"] == 100
    assert (await stream.info()).state.first_seq == 100


# Age (`max_age`)


@STORAGES
async def test_messages_expire_of_themselves(
    jetstream: JetStream, storage: Storage, eventually: Any
) -> None:
    stream = await create(jetstream, "S", subjects=["s"], storage=storage, max_age=100_000_000)
    for _ in range(2):
        await publish(jetstream, "s", b"x")
        await eventually(lambda: stream.store.state().msgs == 0)
    assert (await stream.info()).state.last_seq == 2


async def test_an_age_can_come_and_go_with_an_update(jetstream: JetStream, eventually: Any) -> None:
    stream = await create(jetstream, "S", subjects=["s"], max_age=3_600_000_000_000)
    await publish(jetstream, "s", b"x")
    await update(stream, max_age=100_000_000, duplicate_window=100_000_000)
    await eventually(lambda: stream.store.state().msgs == 0)
    await update(stream, max_age=0)
    await publish(jetstream, "s", b"x")
    assert stream.store.next_expiry_ns() is None


async def test_discard_new_refuses(jetstream: JetStream) -> None:
    stream = await create(jetstream, "S", subjects=["s"], max_msgs=1, discard=DiscardPolicy.NEW)
    await publish(jetstream, "s", b"x")
    answer = await publish(jetstream, "s", b"y")
    assert answer["error"]["description"] == "maximum messages exceeded"
    await stream.purge()
    assert (await publish(jetstream, "s", b"y"))["seq"] == 2
