"""Limits on an account's use of JetStream: for all streams together, or by number of replicas.

    flat      ""  ─▶ limits and usage of all its streams
    tiered    R1  ─▶ limits and usage of streams with one replica
              R3  ─▶ limits and usage of streams with three replicas

Promise
- Flat limits count bytes once for each replica, on whatever server it is; those of a tier count a
  stream's bytes once. Read replicas count towards flat limits only.
- A stream to which no limits apply may not be created, and takes no messages: error 10120.
- The usage and reservations of a tier are part of the server's usage and reservations.
- Limits may change at any time (`change`): a tier that stays keeps its usage, also if it is beyond
  the new limits; what exists stays, and what would need more is refused.

Source: nats-server's `selectLimits`, `tierName`, `wouldExceedLimits` and `JetStreamAccountLimits`;
its limits were compared with a running nats-server 2.14, alone and in a cluster of three.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from natsd.config.account_jetstream import AccountJetStream, StorageLimits
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.models.account import AccountLimits
from natsd.jetstream.stream.publishing import Usage

AccountTiers = Mapping[str, AccountLimits]
"""An account's limits, under FLAT or under tier names; empty: the account has no JetStream."""

AccountsTiers = Mapping[str, AccountTiers]
"""The tiers of several accounts, by account name."""

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
"""Limits that are shown for the whole account if it has tiers."""


@dataclass(frozen=True, slots=True)
class AccountTier:
    """Limits of a tier, and the usage that counts towards them."""

    name: str
    limits: AccountLimits
    usage: Usage

    @property
    def is_flat(self) -> bool:
        """Whether the limits apply to all streams of the account together."""
        return self.name == FLAT

    def counts(self, replicas: int) -> bool:
        """Return whether a stream with that many replicas belongs to this tier."""
        return self.is_flat or self.name == tier_name(replicas)


class Tiers:
    """Tiers of one account; `limits` has tier names as keys, or FLAT and nothing else."""

    def __init__(self, server: Usage, limits: AccountTiers) -> None:
        self._server = server
        # Of streams to which no limits apply, and of read replicas of streams that a tier counts.
        self._without_limits: Usage | None = None
        self._tiers: dict[str, AccountTier] = {}
        self.limits_bytes = False
        """Whether any limit says how many bytes may be used."""
        self.change(limits)

    def change(self, limits: AccountTiers) -> None:
        """Apply other limits; what is counted in a tier that is gone must be counted again."""
        assert FLAT not in limits or len(limits) == 1
        before, self._tiers = self._tiers, {}
        for name, each in sorted(limits.items()):
            if name in before:
                usage = before[name].usage
            else:
                usage = Usage(self._server, replicas=_replicas_of(name))
            usage.memory_limit, usage.file_limit = each.max_memory, each.max_storage
            self._tiers[name] = AccountTier(name, each, usage)
        self.limits_bytes = any(
            max(each.max_memory, each.max_storage) >= 0 for each in limits.values()
        )

    def __iter__(self) -> Iterator[AccountTier]:
        return iter(self._tiers.values())

    def of(self, replicas: int) -> AccountTier:
        """Return the tier of assets with that many replicas. Raises ApiError 10120."""
        tier = self._find(replicas)
        if tier is None:
            raise api_error(ErrorId.JSNoLimitsErr)
        return tier

    def limits_of(self, replicas: int) -> AccountLimits:
        """Return the limits of a stream with that many replicas; unlimited if there is no tier."""
        tier = self._find(replicas)
        return AccountLimits() if tier is None else tier.limits

    def usage_of(self, replicas: int, *, is_read_replica: bool = False) -> Usage:
        """Return the usage in which a stream with that many replicas is counted.

        `is_read_replica`: a read replica of that stream is counted.
        """
        tier = self._find(replicas)
        if tier is not None and (tier.is_flat or not is_read_replica):
            return tier.usage
        if self._without_limits is None:
            refusal = ErrorId.JSNoLimitsErr
            self._without_limits = Usage(
                self._server, memory_limit=0, file_limit=0, refusal=refusal
            )
        return self._without_limits

    def _find(self, replicas: int) -> AccountTier | None:
        return self._tiers.get(FLAT) or self._tiers.get(tier_name(replicas))

    @property
    def limits(self) -> AccountLimits:
        """Limits of all streams together; `NOTHING` if the account has tiers."""
        flat = self._tiers.get(FLAT)
        return NOTHING if flat is None else flat.limits

    @property
    def is_flat(self) -> bool:
        """Whether the limits apply to all streams together."""
        return FLAT in self._tiers

    @property
    def memory_used(self) -> int:
        """Bytes in memory storage on this server, of all tiers."""
        return sum(max(usage.memory_used, 0) for usage in self._usages)

    @property
    def file_used(self) -> int:
        """Bytes in file storage on this server, of all tiers."""
        return sum(max(usage.file_used, 0) for usage in self._usages)

    @property
    def memory_reserved(self) -> int:
        """Bytes reserved of memory storage, of all tiers."""
        return sum(usage.memory_reserved for usage in self._usages)

    @property
    def file_reserved(self) -> int:
        """Bytes reserved of file storage, of all tiers."""
        return sum(usage.file_reserved for usage in self._usages)

    @property
    def _usages(self) -> list[Usage]:
        others = [] if self._without_limits is None else [self._without_limits]
        return [tier.usage for tier in self] + others


def tiers_of(given: AccountJetStream | None) -> AccountTiers:
    """Return the tiers of an account's settings; an account without JetStream has none."""
    if given is None or not given.enabled:
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


def _replicas_of(tier: str) -> int:
    """Return the replicas of a tier's streams; 0: the limits are flat."""
    return int(tier.removeprefix("R") or "0")


def tier_name(replicas: int) -> str:
    """Return the tier's name: `R1` for one replica, and also for 0 (not set)."""
    return f"R{max(replicas, 1)}"
