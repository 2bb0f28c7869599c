"""The answer to `$JS.API.INFO` in a cluster: what an account has and uses on all servers together.

    assignments ──▶ streams, reserved bytes                           every server knows them
    each server ──▶ bytes and consumers of the streams that it leads,
                    requests that it has answered                     it is asked for them

- Bytes count once for each replica, also where they count towards a tier, as nats-server shows
  them. Those of a stream that nobody leads at the moment are not known.
- A server that does not answer, or not as expected, is left out.

Source: nats-server's `Account.JetStreamUsage`; compared with a running nats-server 2.14.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta, Struct

from natsd.jetstream.account import JetStreamAccount
from natsd.jetstream.meta_group.assignments import Assignment
from natsd.jetstream.models.account import AccountInfo, ApiStats, Tier
from natsd.jetstream.models.stream import Storage
from natsd.jetstream.stream.settings_in_metadata import copies
from natsd.jetstream.stream.stream import Stream
from natsd.jetstream.tiers import AccountTier, tier_name

_logger = logging.getLogger(__name__)

QUESTION: Final = "account"
"""Kind of the question that each server answers with its Share."""

Number: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 53)]


class LedStream(Struct, frozen=True):
    """What a stream uses; the server that leads it knows."""

    replicas: Number
    copies: Number  # replicas and read replicas
    is_memory: bool
    bytes: Number  # of one copy
    consumers: dict[int, Number]  # how many there are, by their replicas


class Share(Struct, frozen=True):
    """What one server knows of an account."""

    streams: list[LedStream]
    requests: Number  # to the API, since its start
    errors: Number


_shares = msgspec.json.Decoder(Share)
NO_SHARE: Final = msgspec.json.encode(Share([], 0, 0))


def share_of(account: JetStreamAccount, led: Iterable[Stream]) -> bytes:
    """Return the answer of a server that leads these streams of the account."""
    streams = [_led_stream(each) for each in led]
    return msgspec.json.encode(Share(streams, account.api.total, account.api.errors))


def _led_stream(stream: Stream) -> LedStream:
    config = stream.config
    consumers = Counter(
        each.config.num_replicas or config.num_replicas for each in stream.public_consumers
    )
    return LedStream(
        max(config.num_replicas, 1),
        copies(config),
        config.storage is Storage.MEMORY,
        _used_bytes(stream),
        dict(consumers),
    )


def _used_bytes(stream: Stream) -> int:
    """Return the bytes of the replica here, with delayed messages."""
    delayed = 0 if stream.scheduled is None else stream.scheduled.delays.used_bytes
    stream.ingest.count_usage()
    return stream.ingest.counted_bytes + delayed


def read_shares(answers: Iterable[bytes]) -> list[Share]:
    """Return what servers have answered."""
    found = []
    for answer in answers:
        try:
            found.append(_shares.decode(answer))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            _logger.warning("JetStream: what a server uses is not understood: %s", error)
    return found


def cluster_info(
    account: JetStreamAccount, assigned: Sequence[Assignment], shares: Sequence[Share]
) -> AccountInfo:
    """Return the info of an account, whose streams are `assigned`."""
    own, led = account.info(), [stream for share in shares for stream in share.streams]
    is_flat = account.tiers.is_flat
    return own.model_copy(
        update={
            **_used(led),
            **_reserved(assigned),
            "streams": len(assigned),
            "consumers": sum(number for each in led for number in each.consumers.values()),
            "tiers": {} if is_flat else _tiers(account, assigned, led),
            "api": ApiStats(
                level=own.api.level,
                total=sum(each.requests for each in shares),
                errors=sum(each.errors for each in shares),
            ),
        }
    )


def _tiers(
    account: JetStreamAccount, assigned: Sequence[Assignment], led: Sequence[LedStream]
) -> dict[str, Tier]:
    return {tier.name: _tier(tier, assigned, led) for tier in account.tiers}


def _tier(tier: AccountTier, assigned: Sequence[Assignment], led: Sequence[LedStream]) -> Tier:
    of_tier = [each for each in assigned if tier.counts(each.replicas)]
    consumers = sum(
        number
        for each in led
        for replicas, number in each.consumers.items()
        if tier_name(replicas) == tier.name
    )
    return Tier(
        **_used([each for each in led if tier.counts(each.replicas)], with_read_replicas=False),
        **_reserved(of_tier),
        streams=len(of_tier),
        consumers=consumers,
        limits=tier.limits,
    )


def _used(led: Iterable[LedStream], *, with_read_replicas: bool = True) -> dict[str, int]:
    used = {"memory": 0, "storage": 0}
    for each in led:
        number = each.copies if with_read_replicas else each.replicas
        used["memory" if each.is_memory else "storage"] += number * each.bytes
    return used


def _reserved(assigned: Iterable[Assignment]) -> dict[str, int]:
    reserved = {"reserved_memory": 0, "reserved_storage": 0}
    for each in assigned:
        size = each.size
        is_memory = size.storage == Storage.MEMORY.value
        reserved["reserved_memory" if is_memory else "reserved_storage"] += max(size.max_bytes, 0)
    return reserved
