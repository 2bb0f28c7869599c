"""What an account may use of JetStream: of everything together, or apart by replicas.

    flat      ""  ─▶ limits and usage of all its streams
    tiered    R1  ─▶ limits and usage of streams with one replica
              R3  ─▶ … with three

Promise
- Flat limits count bytes once for each replica; those of a tier count a stream's bytes once.
- What no limits are there for may not be created: 10120.
- What a tier uses and reserves is part of what the server uses and has reserved.

Source: nats-server 2.14 reference 6.15; nats-server's account limits, tried.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from natsd.config.account_options import AccountJetStream, AccountOptions, StorageLimits
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.models.account import AccountLimits
from natsd.jetstream.usage import Usage

AccountTiers = Mapping[str, AccountLimits]
"""An account's limits: under FLAT, or by the names of tiers; none: it has no streams."""

FLAT: Final = ""
UNLIMITED: Final[AccountTiers] = {FLAT: AccountLimits()}
NOTHING: Final = AccountLimits(
    max_memory=0,
    max_storage=0,
    max_streams=0,
    max_consumers=0,
    max_ack_pending=0,
    memory_max_stream_bytes=0,
    storage_max_stream_bytes=0,
)
"""What is shown where limits are only those of tiers."""


@dataclass(frozen=True, slots=True)
class AccountTier:
    """Limits, and what counts towards them."""

    name: str
    limits: AccountLimits
    usage: Usage

    @property
    def is_flat(self) -> bool:
        """It counts everything."""
        return self.name == FLAT

    def counts(self, replicas: int) -> bool:
        """Whether a stream with so many replicas belongs here."""
        return self.is_flat or self.name == tier_name(replicas)


class Tiers:
    """One account's; `limits` by the names of tiers, or under FLAT and nothing else."""

    def __init__(self, server: Usage, limits: AccountTiers) -> None:
        assert FLAT not in limits or len(limits) == 1
        self._tiers = {
            name: AccountTier(
                name,
                each,
                Usage(server, memory_limit=each.max_memory, file_limit=each.max_storage),
            )
            for name, each in sorted(limits.items())
        }

    def __iter__(self) -> Iterator[AccountTier]:
        return iter(self._tiers.values())

    def of(self, replicas: int) -> AccountTier:
        """Where a stream or consumer with so many replicas counts. Raises ApiError 10120."""
        tier = self._find(replicas)
        if tier is None:
            raise api_error(ErrorId.JSNoLimitsErr)
        return tier

    def limits_of(self, replicas: int) -> AccountLimits:
        """What a stream with so many replicas is held to; where there is no such tier, nothing."""
        tier = self._find(replicas)
        return AccountLimits() if tier is None else tier.limits

    def _find(self, replicas: int) -> AccountTier | None:
        return self._tiers.get(FLAT) or self._tiers.get(tier_name(replicas))

    @property
    def limits(self) -> AccountLimits:
        """Those of everything together."""
        flat = self._tiers.get(FLAT)
        return NOTHING if flat is None else flat.limits

    @property
    def is_flat(self) -> bool:
        """Whether limits are those of everything together."""
        return FLAT in self._tiers

    @property
    def memory_used(self) -> int:
        """Bytes, of all tiers."""
        return sum(max(tier.usage.memory_used, 0) for tier in self)

    @property
    def file_used(self) -> int:
        """Bytes, of all tiers."""
        return sum(max(tier.usage.file_used, 0) for tier in self)

    @property
    def memory_reserved(self) -> int:
        """Bytes, of all tiers."""
        return sum(tier.usage.memory_reserved for tier in self)

    @property
    def file_reserved(self) -> int:
        """Bytes, of all tiers."""
        return sum(tier.usage.file_reserved for tier in self)


def account_tiers(accounts: Mapping[str, AccountOptions]) -> Mapping[str, AccountTiers]:
    """The tiers of accounts by name, as they are configured; none of an account without streams."""
    return {name: _tiers(each.jetstream) for name, each in accounts.items()}


def _tiers(given: AccountJetStream) -> AccountTiers:
    if not given.enabled:
        return {}
    if given.tiers:
        return {name: _limits(each) for name, each in given.tiers.items()}
    return {FLAT: _limits(given)}


def _limits(given: StorageLimits) -> AccountLimits:
    return AccountLimits(
        max_memory=given.max_memory,
        max_storage=given.max_store,
        max_streams=given.max_streams,
        max_consumers=given.max_consumers,
        max_ack_pending=given.max_ack_pending,
        memory_max_stream_bytes=given.memory_max_stream_bytes,
        storage_max_stream_bytes=given.disk_max_stream_bytes,
        max_bytes_required=given.max_bytes_required,
    )


def tier_name(replicas: int) -> str:
    """`R1` for one replica, which is also meant where none is said."""
    return f"R{max(replicas, 1)}"
