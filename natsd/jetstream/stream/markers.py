"""Delete markers: messages that a stream stores where the last message of a subject expires.

A marker tells the watchers of a subject that its value is gone. It lives for the stream's
`subject_delete_marker_ttl`, and leaves no marker itself. It takes the place of the message in one
commit, so that after any crash one of the two is there. A removal, a purge or a rollup leaves no
marker: the client that asked for it knows.

Source: ADR-43 (`Nats-Marker-Reason`).
"""

import contextlib
import re
from collections.abc import Iterable
from typing import Final

from natsd.core.durations import format_duration_ns
from natsd.jetstream.stream.answers import OwnMessageRefused
from natsd.jetstream.stream.publishing import Ingest
from natsd.store.errors import StoreError
from natsd.store.log_store import LogStore

_MARKER: Final = re.compile(rb"\r\n(?:Nats-Marker-Reason: *[^\s]|KV-Operation: *PURGE\r\n)")


def is_marker(headers: bytes) -> bool:
    """Tell whether a message is a server's marker or a purged key: its subject has no value."""
    return _MARKER.search(headers) is not None


def marker_headers(lifetime_ns: int) -> bytes:
    """Return the header block of a marker that lives for `lifetime_ns`, in whole seconds."""
    lifetime = format_duration_ns(lifetime_ns // 1_000_000_000 * 1_000_000_000)
    lines = ("NATS/1.0", "Nats-Marker-Reason: MaxAge", f"Nats-TTL: {lifetime}", "Nats-Rollup: sub")
    return "\r\n".join((*lines, "", "")).encode()


def replace_expired(
    ingest: Ingest, store: LogStore, due: Iterable[tuple[int, bytes, bytes]], lifetime_ns: int
) -> None:
    """Replace each message that is due and the last of its subject by a marker; remove markers.

    A message whose marker cannot be stored now stays.
    """
    headers = marker_headers(lifetime_ns)
    for sequence, subject, replaced_headers in due:
        if is_marker(replaced_headers):
            store.log.delete(sequence)
        else:
            with contextlib.suppress(OwnMessageRefused, StoreError):
                ingest.store_own(subject, headers, b"", is_mapped=True)
