"""Checks whether there is room for a stream: reserved bytes against limits.

A stream with `max_bytes` reserves that many bytes of its account's limit and of the server's limit.
An account's limit takes nothing from the server's limit until a stream reserves bytes.

Source: nats-server's `checkBytesLimits`, `sufficientResources` and `reserveStreamResources`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.models.account import AccountLimits
from natsd.jetstream.models.stream import Storage, StreamConfig
from natsd.jetstream.stream.publishing import Usage
from natsd.jetstream.tiers import AccountTier, Tiers


def reservation(config: StreamConfig | None) -> int:
    """Return the bytes that this stream reserves; 0 without `max_bytes`."""
    return max(config.max_bytes, 0) if config is not None else 0


def reserve(usage: Usage, config: StreamConfig, before: StreamConfig | None = None) -> None:
    """Reserve the bytes of the configuration, and release those of the configuration `before`."""
    change = reservation(config) - reservation(before)
    usage.reserve(is_memory=config.storage is Storage.MEMORY, change=change)


def release(usage: Usage, config: StreamConfig) -> None:
    """Release the bytes that the stream reserves."""
    usage.reserve(is_memory=config.storage is Storage.MEMORY, change=-reservation(config))


def reserve_anew(tiers: Tiers, before: StreamConfig, config: StreamConfig) -> None:
    """Release the bytes of the configuration `before`, and reserve those of another one."""
    release(tiers.usage_of(before.num_replicas), before)
    reserve(tiers.usage_of(config.num_replicas), config)


def check_room(tier: AccountTier, config: StreamConfig, before: StreamConfig | None = None) -> None:
    """Check that the account and the server have room for the stream.

    `before` is the present configuration; None if the stream is new. Raises ApiError 10026, 10028,
    10047.
    """
    usage = tier.usage
    assert usage.server is not None
    if 0 < tier.limits.max_consumers < config.max_consumers:
        raise api_error(ErrorId.JSMaximumConsumersLimitErr)
    # A new stream without `max_bytes` reserves nothing, but there must be room for at least a byte.
    least = 1 if before is None and config.max_bytes < 0 else 0
    more = reservation(config) - reservation(before) + least
    of_account = more * max(config.num_replicas, 1) if tier.is_flat else more
    is_memory = config.storage is Storage.MEMORY
    if _exceeds(usage, is_memory, of_account) or (
        more > 0 and _exceeds(usage.server, is_memory, more)
    ):
        _refuse(is_memory)


@dataclass(frozen=True, slots=True)
class PromisedBytes:
    """What a server must have because of the limits of its accounts; no limit promises nothing."""

    memory: int = 0
    storage: int = 0

    @classmethod
    def of(cls, accounts: Iterable[AccountLimits]) -> "PromisedBytes":
        """Return what these limits promise together."""
        memory = storage = 0
        for limits in accounts:
            memory += max(limits.max_memory, 0)
            storage += max(limits.max_storage, 0)
        return cls(memory, storage)

    def __add__(self, other: "PromisedBytes") -> "PromisedBytes":
        return PromisedBytes(self.memory + other.memory, self.storage + other.storage)

    def __sub__(self, other: "PromisedBytes") -> "PromisedBytes":
        return PromisedBytes(self.memory - other.memory, self.storage - other.storage)


NO_BYTES: Final = PromisedBytes()


def check_promised(
    server: Usage, promised: PromisedBytes, before: PromisedBytes = NO_BYTES
) -> None:
    """Check that the server has what its accounts may use together. Raises ApiError 10028, 10047.

    What is not more than `before` is allowed: limits may shrink.
    """
    if 0 <= server.memory_limit < promised.memory and promised.memory > before.memory:
        _refuse(is_memory=True)
    if 0 <= server.file_limit < promised.storage and promised.storage > before.storage:
        _refuse(is_memory=False)


def _refuse(is_memory: bool) -> None:
    raise api_error(
        ErrorId.JSMemoryResourcesExceededErr if is_memory else ErrorId.JSStorageResourcesExceededErr
    )


def _exceeds(usage: Usage, is_memory: bool, more: int) -> bool:
    if is_memory:
        return 0 <= usage.memory_limit < usage.memory_reserved + more
    return 0 <= usage.file_limit < usage.file_reserved + more
