"""Whether there is room for a stream: what was promised already, and what may be.

A stream with `max_bytes` reserves that much, of its account's limit and of the server's. What an
account is allowed is not taken from the server's before a stream reserves it.

Source: nats-server 2.14 reference 6.15, and what nats-server checks when a stream is created.
"""

from collections.abc import Iterable

from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.models.account import AccountLimits
from natsd.jetstream.models.stream import Storage, StreamConfig
from natsd.jetstream.tiers import AccountTier
from natsd.jetstream.usage import Usage


def reservation(config: StreamConfig | None) -> int:
    """The bytes that this stream reserves."""
    return max(config.max_bytes, 0) if config is not None else 0


def reserve(usage: Usage, config: StreamConfig, before: StreamConfig | None = None) -> None:
    """The stream reserves what its configuration says, no more what it said `before`."""
    change = reservation(config) - reservation(before)
    usage.reserve(is_memory=config.storage is Storage.MEMORY, change=change)


def release(usage: Usage, config: StreamConfig) -> None:
    """The stream reserves nothing any more."""
    usage.reserve(is_memory=config.storage is Storage.MEMORY, change=-reservation(config))


def check_room(tier: AccountTier, config: StreamConfig, before: StreamConfig | None = None) -> None:
    """Whether the account and the server have room for the stream, which was `before` or is new.

    Raises ApiError 10026, 10028, 10047.
    """
    usage = tier.usage
    assert usage.server is not None
    if 0 < tier.limits.max_consumers < config.max_consumers:
        raise api_error(ErrorId.JSMaximumConsumersLimitErr)
    # There must be room for something, whatever a new stream without `max_bytes` will take.
    least = 1 if before is None and config.max_bytes < 0 else 0
    more = reservation(config) - reservation(before) + least
    of_account = more * max(config.num_replicas, 1) if tier.is_flat else more
    is_memory = config.storage is Storage.MEMORY
    if _exceeds(usage, is_memory, of_account) or (
        more > 0 and _exceeds(usage.server, is_memory, more)
    ):
        _refuse(is_memory)


def check_promised(server: Usage, accounts: Iterable[AccountLimits]) -> None:
    """Whether the server has what its accounts may use together. Raises ApiError 10028, 10047."""
    memory = storage = 0
    for limits in accounts:
        memory += max(limits.max_memory, 0)
        storage += max(limits.max_storage, 0)
    if 0 <= server.memory_limit < memory:
        _refuse(is_memory=True)
    if 0 <= server.file_limit < storage:
        _refuse(is_memory=False)


def _refuse(is_memory: bool) -> None:
    raise api_error(
        ErrorId.JSMemoryResourcesExceededErr if is_memory else ErrorId.JSStorageResourcesExceededErr
    )


def _exceeds(usage: Usage, is_memory: bool, more: int) -> bool:
    if is_memory:
        return 0 <= usage.memory_limit < usage.memory_reserved + more
    return 0 <= usage.file_limit < usage.file_reserved + more
