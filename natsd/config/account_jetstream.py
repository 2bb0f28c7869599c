"""JetStream's settings of an account.

- An account's `jetstream` is a boolean, `enabled` or `disabled`, or a mapping of limits; a limit of
  -1 means no limit.
- `tiers` holds limits by the number of replicas, `R1` to `R5`. They replace the limits that apply
  to all streams together. nats-server takes tiers from JWTs only.

Source: nats-server's `parseJetStreamForAccount` (server/opts.go).
"""
# ruff: noqa: RUF009  each call declares a setting; nothing is shared between instances

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from natsd.config.sections import section_of
from natsd.config.settings import (
    NamedSections,
    OptionsError,
    Settings,
    flag,
    in_words,
    section,
    size,
    whole,
    word,
)

INT32_MAX: Final = 2**31 - 1
TIERS: Final = ("R1", "R2", "R3", "R4", "R5")
_ENABLED: Final = {"enabled": True, "enable": True, "disabled": False, "disable": False}
_TRAFFIC: Final = {"system": "system", "owner": "owner", "": "system"}

ALIASES: Final = {
    alias: name
    for name, aliases in {
        "enabled": "enable",
        "max_memory": "max_mem mem memory",
        "max_store": "max_file max_disk store disk",
        "max_streams": "streams",
        "max_consumers": "consumers",
        "max_bytes_required": "max_stream_bytes max_bytes",
        "memory_max_stream_bytes": "mem_max_stream_bytes",
        "disk_max_stream_bytes": "store_max_stream_bytes",
    }.items()
    for alias in aliases.split()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageLimits(Settings):
    """Limits on an account's streams and consumers, for all of them or for one tier; -1: none."""

    max_memory: int = size(-1, -1, "bytes in memory streams")
    max_store: int = size(-1, -1, "bytes in file streams")
    max_streams: int = whole(-1, -1, INT32_MAX, "streams; 0: no limit either")
    max_consumers: int = whole(-1, -1, INT32_MAX, "consumers of a stream; 0: no limit either")
    max_ack_pending: int = whole(-1, -1, INT32_MAX, "most a consumer may have unacknowledged")
    memory_max_stream_bytes: int = size(-1, -1, "largest max_bytes of a memory stream")
    disk_max_stream_bytes: int = size(-1, -1, "largest max_bytes of a file stream")
    max_bytes_required: bool = flag(False, "refuse streams without max_bytes")


def _read_tiers(given: object) -> NamedSections[StorageLimits]:
    if not isinstance(given, Mapping):
        raise OptionsError("must be a mapping of tiers")
    for name in given:
        if name not in TIERS:
            raise OptionsError(f"there is no tier {name!r}: they are {', '.join(TIERS)}")
    return NamedSections({name: _read_limits(StorageLimits, each) for name, each in given.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountJetStream(StorageLimits):
    """JetStream's settings of one account."""

    enabled: bool = flag(True, "serve streams and consumers")
    cluster_traffic: str = word("system", _TRAFFIC, "whose account carries replication")
    tiers: NamedSections[StorageLimits] = section(
        NamedSections[StorageLimits](), _read_tiers, "limits by the number of replicas"
    )

    def check(self) -> None:
        """Check settings that depend on each other. Raises OptionsError."""
        if self.tiers and _flat(self) != StorageLimits():
            raise OptionsError("limits are those of tiers, or of everything together")


def _flat(given: StorageLimits) -> StorageLimits:
    """Return only the StorageLimits fields, without those of a subclass."""
    names = StorageLimits.__dataclass_fields__
    return StorageLimits(**{name: getattr(given, name) for name in names})


_read_limits: Callable[..., StorageLimits] = partial(section_of, aliases=ALIASES)


def read_account_jetstream(given: object) -> AccountJetStream:
    """Return the settings from a boolean, a word or a mapping. Raises OptionsError."""
    if isinstance(given, str):
        if given.lower() not in _ENABLED:
            raise OptionsError(f"must be enabled, disabled, or a mapping, not {in_words(given)}")
        given = _ENABLED[given.lower()]
    if isinstance(given, bool):
        return AccountJetStream(enabled=given)
    return section_of(AccountJetStream, given, aliases=ALIASES)
