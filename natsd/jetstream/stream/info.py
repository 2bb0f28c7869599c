"""A stream as `STREAM.INFO` shows it.

Source: nats-server's `StreamInfo` and `jsStreamInfoRequest`.
"""

import asyncio
from collections import deque
from collections.abc import Sized
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from natsd.core.routing import InvalidSubject
from natsd.jetstream.models.stream import LostStreamData, StreamConfig, StreamInfo, StreamState
from natsd.jetstream.stream.state import StreamReaders, visible_state
from natsd.store.log_store import LogStore
from natsd.store.recovery.found_damage import FoundDamage
from natsd.store.store import StoreState

if TYPE_CHECKING:
    from natsd.jetstream.server_resources import ServerResources
    from natsd.jetstream.sourcing.sourcing import Sourcing

SUBJECTS_MAX: Final = 100_000
"""Greatest number of subjects in one answer."""
SKIPPED_AT_ONCE: Final = 50_000
"""Subjects of earlier pages that are skipped between two turns of the event loop."""
LOST_MAX: Final = 10_000
"""Greatest number of sequences of lost messages that are listed one by one."""


class ShownStream(Protocol):
    """A stream, as far as its info needs it."""

    config: StreamConfig
    created_ns: int
    readers: StreamReaders
    jetstream: "ServerResources"
    sourcing: "Sourcing"

    @property
    def damage(self) -> list[FoundDamage]:
        """The damage that was found in the stream's files."""

    @property
    def public_consumers(self) -> Sized:
        """The consumers that infos count and list."""


def stream_info(stream: ShownStream, *, deleted_details: bool = False) -> StreamInfo:
    """Return settings and state, without the counts of subjects."""
    found = visible_state(stream.readers.log, stream.readers.visible, with_deleted=deleted_details)
    return StreamInfo(
        config=stream.config,
        created=stream.created_ns,
        state=state_of(found, stream.damage, len(stream.public_consumers)),
        domain=stream.jetstream.options.domain,
        mirror=stream.sourcing.mirror_info(),
        sources=stream.sourcing.sources_info(),
        ts=stream.jetstream.scheduler.now_ns(),
    )


def state_of(found: StoreState, damage: list[FoundDamage], consumer_count: int) -> StreamState:
    """Return a store's state as the API shows it."""
    return StreamState(
        messages=found.msgs,
        bytes=found.bytes,
        first_seq=found.first_sequence,
        first_ts=found.first_time_ns,
        last_seq=found.last_sequence,
        last_ts=found.last_time_ns,
        num_subjects=found.num_subjects,
        num_deleted=found.num_deleted,
        deleted=[] if found.deleted is None else list(found.deleted),
        lost=lost_of(damage),
        consumer_count=consumer_count,
    )


def lost_of(damage: list[FoundDamage]) -> LostStreamData | None:
    """Return the messages that damage destroyed, as far as they are known; None: none."""
    lost = [each for each in damage if each.first_sequence]
    if not lost:
        return None
    sequences: list[int] = []
    for each in lost:
        last = each.last_sequence or each.first_sequence
        room = LOST_MAX - len(sequences)
        sequences.extend(range(each.first_sequence, min(last + 1, each.first_sequence + room)))
    return LostStreamData(msgs=sequences, bytes=sum(each.length for each in lost))


async def subject_counts(store: LogStore, pattern: str, offset: int) -> tuple[dict[str, int], int]:
    """Return a page of the messages per matching subject, in order, and the number of matches."""
    try:
        totals = await store.subject_totals(pattern)
    except InvalidSubject:
        return {}, 0
    if offset <= 0 and len(totals) <= SUBJECTS_MAX:
        return totals, len(totals)
    counts = iter(totals.items())  # in the order of the index
    for _ in range(max(offset, 0) // SKIPPED_AT_ONCE):
        deque(islice(counts, SKIPPED_AT_ONCE), maxlen=0)
        await asyncio.sleep(0)
    deque(islice(counts, max(offset, 0) % SKIPPED_AT_ONCE), maxlen=0)
    return dict(islice(counts, SUBJECTS_MAX)), len(totals)
