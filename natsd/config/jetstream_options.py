"""The settings of JetStream, with the names and defaults of nats-server's `jetstream {}`.

- A `JetStreamOptions` is frozen and valid. Sizes are bytes, durations `timedelta`.
- Sizes that depend on the machine are -1 until `natsd.config.resources` sets them. If `store_dir`
  is None, the code that starts JetStream chooses a directory.
- Settings that only clusters use are accepted, and have no effect on a single server.

Source: nats-server's `parseJetStream` (server/opts.go). The default of `sync_interval` is `always`
here, and 2m in nats-server.
"""
# ruff: noqa: RUF009  each call declares a setting; nothing is shared between instances

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

from natsd.config.sections import section_of
from natsd.config.settings import (
    OptionsError,
    Settings,
    duration,
    file,
    flag,
    in_words,
    secret,
    section,
    section_field,
    size,
    text,
    whole,
    word,
)

MIB: Final = 1 << 20
INT32_MAX: Final = 2**31 - 1
NO_SCRUB: Final = timedelta.max
"""Value of `scrub_interval`: stored files are not read again to verify them."""
SYNC_ALWAYS: Final = timedelta(0)
"""Value of `sync_interval`: sync before each acknowledgement; many publishers share one sync."""

DIRECTORY: Final = "jetstream"
"""Name of JetStream's directory under `store_dir`."""
_DOMAIN_FORBIDS: Final = frozenset(" \t\r\n\f.*>")
_ENABLED: Final = {"enabled": True, "enable": True, "disabled": False, "disable": False}

ALIASES: Final = {
    alias: name
    for name, aliases in {
        "enabled": "enable",
        "store_dir": "store storedir",
        "max_memory_store": "max_mem_store max_mem",
        "max_file_store": "max_file",
        "sync_interval": "sync",
        "key": "ek encryption_key",
        "prev_key": "prev_ek prev_encryption_key",
    }.items()
    for alias in aliases.split()
}

CIPHERS: Final = {"chachapoly": "chachapoly", "chacha": "chachapoly", "aes": "aes"}


def _read_tpm(given: object) -> None:
    """Accept an empty section alone. Raises OptionsError."""
    if given:
        raise OptionsError("keys in a TPM are not supported; use key, or NATSD_JETSTREAM_KEY_FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits(Settings):
    """Limits on publish batches (ADR-50).

    An inflight limit of 0 stands for 50 atomic and 1,000 fast batches per stream, and for 1,000 and
    50,000 per server.
    """

    max_inflight_per_stream: int = whole(0, 0, INT32_MAX, "batches that a stream has under way")
    max_inflight_total: int = whole(0, 0, INT32_MAX, "batches that the server has under way")
    max_msgs: int = whole(1_000, 1, INT32_MAX, "messages of an atomic batch", zero_is_default=True)
    timeout: timedelta = duration(
        timedelta(seconds=10), "how long a batch may be without a message"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JetStreamLimits(Settings):
    """Limits on the streams and consumers that clients create; 0 or below: no limit."""

    max_ack_pending: int = whole(0, -1, INT32_MAX, "most a consumer may have unacknowledged")
    max_ha_assets: int = whole(0, -1, INT32_MAX, "replicated streams and consumers of a server")
    max_request_batch: int = whole(0, -1, INT32_MAX, "most messages one pull may ask for")
    duplicate_window: timedelta = duration(timedelta(0), "longest duplicate window of a stream")
    batch: BatchLimits = section(
        BatchLimits(), partial(section_of, BatchLimits), "bounds on batches under way"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JetStreamOptions(Settings):
    """JetStream's settings; JetStream runs only if `enabled` is True."""

    enabled: bool = flag(False, "serve streams and consumers")
    store_dir: Path | None = file("directory in which data is kept, in jetstream/")
    max_memory_store: int = size(
        -1, -1, "bytes that memory streams may take; 0: none, -1: 75 % of this machine's memory"
    )
    max_file_store: int = size(
        -1, -1, "bytes that file streams may take; 0: none, -1: 75 % of what is free or held"
    )
    domain: str = text("", "name of this JetStream where several are connected")
    strict: bool = flag(True, "refuse unknown fields in API requests")
    sync_interval: timedelta = duration(
        SYNC_ALWAYS,
        "how often file streams are synced; always: before each acknowledgement",
        words={"always": SYNC_ALWAYS},
    )
    scrub_interval: timedelta = duration(
        timedelta(days=7),
        "how often all stored files are read and verified; off: never",
        words={"off": NO_SCRUB},
    )
    scrub_speed: int = size(8 * MIB, 1, "bytes that a scrub reads in a second")
    key: str = secret("key that JetStream's files are encrypted with; empty: they are not")
    prev_key: str = secret("the key before, while keys are being rotated")
    cipher: str = word("chachapoly", CIPHERS, "how JetStream's files are encrypted")
    unique_tag: str = text("", "prefix of the server tag in which replicas must differ")
    max_outstanding_catchup: int = size(
        64 * MIB, 1, "bytes under way to replicas that catch up", zero_is_default=True
    )
    max_buffered_size: int = size(
        128 * MIB, 1, "bytes of a stream that may wait to be stored", zero_is_default=True
    )
    max_buffered_msgs: int = whole(
        100_000,
        1,
        INT32_MAX,
        "messages of a stream that may wait to be stored",
        zero_is_default=True,
    )
    request_queue_limit: int = whole(
        10_000, 1, INT32_MAX, "API requests that may wait", zero_is_default=True
    )
    info_queue_limit: int = whole(
        0, 0, INT32_MAX, "API requests for information that may wait; 0: as request_queue_limit"
    )
    max_concurrent_io: int = whole(
        4096, 4, 8192, "file operations that may run at once", zero_is_default=True
    )
    extension_hint: str = word(
        "", {"": "", "will_extend": "will_extend", "no_extend": "no_extend"}, "used by leaf nodes"
    )
    meta_compact: int = whole(0, 0, INT32_MAX, "used by clusters")
    meta_compact_size: int = size(0, 0, "used by clusters")
    meta_compact_sync: bool = flag(False, "used by clusters")
    tpm: object = section_field(None, _read_tpm, "key in a TPM: not supported", is_secret=True)
    limits: JetStreamLimits = section(
        JetStreamLimits(),
        partial(section_of, JetStreamLimits),
        "bounds on what clients may ask for",
    )

    def check(self) -> None:
        """Check settings that depend on each other. Raises OptionsError."""
        object.__setattr__(self, "unique_tag", self.unique_tag.strip().lower())
        if not self.info_queue_limit:
            object.__setattr__(self, "info_queue_limit", self.request_queue_limit)
        if not _DOMAIN_FORBIDS.isdisjoint(self.domain):
            raise OptionsError("invalid domain name: may not contain ., * or >")
        if self.prev_key and not self.key:
            raise OptionsError("prev_key needs a key")

    @property
    def directory(self) -> Path:
        """Directory of all files of JetStream; `store_dir` must not be None."""
        assert self.store_dir is not None
        return self.store_dir / DIRECTORY

    @property
    def syncs_always(self) -> bool:
        """Whether every message is synced before its acknowledgement."""
        return self.sync_interval == SYNC_ALWAYS


def read_jetstream(given: object) -> JetStreamOptions:
    """Return JetStream's settings from a boolean, `enabled` or `disabled`, or a mapping.

    A mapping enables JetStream unless it says otherwise. Raises OptionsError.
    """
    if isinstance(given, str):
        if given.lower() not in _ENABLED:
            raise OptionsError(f"must be enabled, disabled, or a mapping, not {in_words(given)}")
        given = _ENABLED[given.lower()]
    if isinstance(given, bool):
        return JetStreamOptions(enabled=given)
    return section_of(JetStreamOptions, given, aliases=ALIASES, defaults={"enabled": True})
