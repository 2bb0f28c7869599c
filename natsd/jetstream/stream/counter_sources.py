"""The totals of other streams that a counter has added, as its messages carry them.

    Nats-Counter-Sources: {"EU":{"count.eu":"40"},"US":{"count.us":"2"}}      stream, subject, total
    Nats-Stream-Source: EU 17 > > count.eu                 of the message that brings the next total

A total replaces the known one, so a message that arrives twice changes nothing.

Source: ADR-49; nats-server's `processJetStreamMsg`.
"""

import json

from natsd.jetstream.headers import header_value
from natsd.jetstream.models.go_json import encode_value

SOURCES = "Nats-Counter-Sources"
_INCREMENT = "Nats-Incr"
_ORIGIN = "Nats-Stream-Source"
_ORIGIN_SUBJECT = 4
"""Index of the subject among the fields of a message's origin, if the origin has it."""


class BrokenSources(ValueError):
    """A header or a payload is not what a server writes for a counter."""


def value_in(body: bytes) -> bytes:
    """Return the total in a counter's payload, in any form of JSON. Raises BrokenSources."""
    value = _object(body).get("val", "")
    if not isinstance(value, str):
        raise BrokenSources
    return value.encode("utf-8", "surrogatepass")


def note_source(known: bytes, headers: bytes, subject: str, total: bytes) -> tuple[bytes, bytes]:
    """Return the known totals after a sourced message, and the total that its origin had before.

    `headers` are those of the message, `total` is what it tells. The known totals are JSON text;
    the total before is b"" if the origin had none. Raises BrokenSources.
    """
    origin = (header_value(headers, _ORIGIN) or b"").decode("utf-8", "replace").split(" ")
    if len(origin) > _ORIGIN_SUBJECT:
        subject = origin[_ORIGIN_SUBJECT]
    sources = _sources(known)
    totals = sources.setdefault(origin[0], {})
    before = totals.get(subject, "")
    totals[subject] = total.decode()
    ordered = {stream: dict(sorted(sources[stream].items())) for stream in sorted(sources)}
    return encode_value(ordered), before.encode("utf-8", "surrogatepass")


def with_count(headers: bytes, change: bytes, sources: bytes) -> bytes:
    """Return the header block of a sourced message as it is stored.

    It gets `change`, the number that is added here, and `sources`, the known totals from now on.
    """
    return _with_header(_with_header(headers, _INCREMENT, change), SOURCES, sources)


def _sources(known: bytes) -> dict[str, dict[str, str]]:
    found = _object(known) if known else {}
    sources: dict[str, dict[str, str]] = {}
    for stream, totals in found.items():
        if not isinstance(totals, dict) or not all(isinstance(t, str) for t in totals.values()):
            raise BrokenSources
        sources[stream] = totals
    return sources


def _object(text: bytes) -> dict[str, object]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise BrokenSources from None
    if not isinstance(found, dict):
        raise BrokenSources
    return found


def _with_header(headers: bytes, name: str, value: bytes) -> bytes:
    line = b"\r\n" + name.encode() + b":"
    start = headers.find(line)
    if start < 0:
        return headers[:-2] + line[2:] + b" " + value + b"\r\n\r\n"
    end = headers.find(b"\r\n", start + len(line))
    return headers[:start] + line + b" " + value + headers[end:]
