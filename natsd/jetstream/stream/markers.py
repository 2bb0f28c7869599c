"""Delete markers: what a stream stores where the last message of a subject has expired.

Those who watch a subject hear from it that its value is gone. A marker lives for the stream's
`subject_delete_marker_ttl`, and leaves none itself.

Source: nats-server 2.14 reference 6.4 (`subject_delete_marker_ttl`), 6.7 (`Nats-Marker-Reason`).
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from natsd.config.durations import format_duration_ns
from natsd.jetstream.stream.publish import Ingest
from natsd.store.errors import MessageNotFound
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


def place_markers(
    ingest: Ingest, store: LogStore, expired: Iterable[tuple[bytes, bytes]], lifetime_ns: int
) -> None:
    """For the subjects of expired messages that have none by now."""
    headers = marker_headers(lifetime_ns)
    for subject in _without_message(store, expired):
        ingest.publish_internal(subject, headers, b"")


def _without_message(store: LogStore, expired: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    for subject, headers in expired:
        if is_marker(headers):
            continue
        try:
            store.load_last_cached(subject.decode("utf-8", "surrogateescape"))
        except MessageNotFound:
            yield subject
