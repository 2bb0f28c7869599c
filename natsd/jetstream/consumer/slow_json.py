"""Unusual pull requests and NAK delays, and the errors of wrong ones.

They are read as the requests of the API are (`go_json`), with the same errors; unknown fields are
ignored. The usual ones are read in place (flat_object.pxd).
"""

from typing import Final

from natsd.core.durations import DurationError, parse_duration_ns
from natsd.jetstream.models.base import DurationNs, Model
from natsd.jetstream.models.go_json import InvalidJson, decode
from natsd.jetstream.models.requests import ConsumerGetNextRequest

TEXT_BYTES_MAX: Final = 64  # bytes of a delay
BODY_BYTES_MAX: Final = 64 * 1024  # decoding a longer body would hold the event loop too long


class NakDelay(Model):
    """The argument of a NAK."""

    delay: DurationNs = 0


def read_pull_request(body: bytes) -> ConsumerGetNextRequest:
    """Return the fields of a pull request. Raises InvalidJson with the text for the status line."""
    if len(body) > BODY_BYTES_MAX:
        raise InvalidJson("request is too large")
    return decode(ConsumerGetNextRequest, body, strict=False, is_one_value=True)


def nak_delay_ns(text: bytes) -> int | None:
    """Return the delay in ns from `{"delay": ns}` or a Go duration; None if the text is neither."""
    if not text.startswith(b"{"):
        try:
            return parse_duration_ns(text[: TEXT_BYTES_MAX + 1].decode(errors="replace"))
        except DurationError:
            return None
    if len(text) > BODY_BYTES_MAX:
        return None
    try:
        return decode(NakDelay, text, strict=False, is_one_value=True).delay
    except InvalidJson:
        return None
