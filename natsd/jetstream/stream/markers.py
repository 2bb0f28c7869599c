"""Delete markers: what a stream stores where the last message of a subject expires.

Those who watch a subject hear from it that its value is gone. A marker lives for the stream's
`subject_delete_marker_ttl`, and leaves none itself. It takes the place of the message: both are one
commit, so that whatever happens there is one of them. Who removes, purges or replaces a message
knows that it is gone: no marker says so.

Source: nats-server 2.14 reference 6.4 (`subject_delete_marker_ttl`), 6.7 (`Nats-Marker-Reason`).
"""

import contextlib
import re
from collections.abc import Iterable
from typing import Final

from natsd.config.durations import format_duration_ns
from natsd.jetstream.stream.answers import OwnMessageRefused
from natsd.jetstream.stream.publish import Ingest
from natsd.store.errors import StoreError
from natsd.store.log_store import LogStore

_MARKER: Final = re.compile(rb"\r\n(?:Nats-Marker-Reason: *[^\s]|KV-Operation: *PURGE\r\n)")


def is_marker(headers: bytes) -> bool:
    """Whether a message says that its subject has no value: a server's marker or a purged key's."""
    return _MARKER.search(headers) is not None


def marker_headers(lifetime_ns: int) -> bytes:
    """The header block of a marker."""
    lifetime = format_duration_ns(lifetime_ns // 1_000_000_000 * 1_000_000_000)
    lines = ("NATS/1.0", "Nats-Marker-Reason: MaxAge", f"Nats-TTL: {lifetime}", "Nats-Rollup: sub")
    return "\r\n".join((*lines, "", "")).encode()


def replace_expired(
    ingest: Ingest, store: LogStore, due: Iterable[tuple[int, bytes, bytes]], lifetime_ns: int
) -> None:
    """Of messages that are due and the last of their subjects, a marker goes, and anything else
    gives way to one. What cannot be stored now leaves its message where it is."""
    headers = marker_headers(lifetime_ns)
    for sequence, subject, replaced_headers in due:
        if is_marker(replaced_headers):
            store.log.delete(sequence)
        else:
            with contextlib.suppress(OwnMessageRefused, StoreError):
                ingest.store_own(subject, headers, b"", is_mapped=True)
