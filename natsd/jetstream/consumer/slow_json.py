"""Unusual pull requests and NAK delays, and the errors of wrong ones.

Whatever nats-server accepts is accepted: any order and case of keys, unknown keys, null, the last
of several equal keys. Whatever it refuses is refused with its texts, which name its own types.

The accepted forms and the texts were observed on nats-server 2.14.
"""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from natsd.core.durations import DurationError, parse_duration_ns
from natsd.jetstream.models.json_syntax import json_error

INT64_MAX: Final = 2**63 - 1
TEXT_BYTES_MAX: Final = 64  # bytes of a delay
SHOWN_CHARS_MAX: Final = 256  # characters of a wrong value that the error repeats
BODY_BYTES_MAX: Final = 64 * 1024  # decoding a longer body would hold the event loop too long


class WrongRequest(ValueError):
    """A wrong pull request; the text is the error for the status line."""


class _Number(str):
    """A number as it was written."""


class _Field(NamedTuple):
    name: str
    kind: str  # name of its type in nats-server's error
    prefix: str = ""


_FIELDS: Final[tuple[_Field, ...]] = (
    _Field("batch", "int"),
    _Field("max_bytes", "int"),
    _Field("expires", "time.Duration"),
    _Field("idle_heartbeat", "time.Duration"),
    _Field("no_wait", "bool"),
    _Field("id", "string", "PriorityGroup."),
    _Field("min_pending", "int64", "PriorityGroup."),
    _Field("min_ack_pending", "int64", "PriorityGroup."),
    _Field("priority", "int", "PriorityGroup."),
    _Field("group", "string", "PriorityGroup."),
)
_BY_NAME: Final = {field.name: field for field in _FIELDS}


class Request(NamedTuple):
    """The fields in the order in which pull_request.pyx takes them; durations are in ns."""

    batch: int
    max_bytes: int
    expires: int
    idle_heartbeat: int
    no_wait: bool
    id: bytes
    min_pending: int
    min_ack_pending: int
    priority: int
    group: bytes


def read_pull_request(body: bytes) -> Request:
    """Return the fields of a pull request. Raises WrongRequest."""
    values: dict[str, int | bool | str] = {}
    for key, value in _pairs(body):
        field = _BY_NAME.get(key) or _BY_NAME.get(key.lower())
        if field is not None and value is not None:
            values[field.name] = _checked(field, value)
    return Request(
        int(values.get("batch", 0)),
        int(values.get("max_bytes", 0)),
        int(values.get("expires", 0)),
        int(values.get("idle_heartbeat", 0)),
        bool(values.get("no_wait", False)),
        _text(values.get("id", "")),
        int(values.get("min_pending", 0)),
        int(values.get("min_ack_pending", 0)),
        int(values.get("priority", 0)),
        _text(values.get("group", "")),
    )


def _text(value: object) -> bytes:
    return str(value).encode(errors="surrogatepass")


def nak_delay_ns(text: bytes) -> int | None:
    """Return the delay in ns from `{"delay": ns}` or a Go duration; None if the text is neither."""
    delay: object = 0
    if not text.startswith(b"{"):
        try:
            return parse_duration_ns(text[: TEXT_BYTES_MAX + 1].decode(errors="replace"))
        except DurationError:
            return None
    field = _Field("delay", "time.Duration")
    try:
        for key, value in _pairs(text):
            if key.lower() == field.name and value is not None:
                delay = _checked(field, value)
    except WrongRequest:
        return None
    return int(delay) if isinstance(delay, int) else None


def _pairs(text: bytes) -> list[tuple[str, object]]:
    """Return the keys and values of the outermost object, in order. Raises WrongRequest."""
    if len(text) > BODY_BYTES_MAX:
        raise WrongRequest("request is too large")
    wrong = json_error(text)
    if wrong is not None:
        raise WrongRequest(wrong)
    found: list[list[tuple[str, object]]] = []

    def note(pairs: list[tuple[str, object]]) -> Mapping[str, object]:
        found.append(pairs)
        return {}

    try:
        json.loads(
            text.decode(errors="replace"),
            object_pairs_hook=note,
            parse_int=_Number,
            parse_float=_Number,
        )
    except RecursionError:
        raise WrongRequest("exceeded max depth") from None
    return found[-1]  # the outermost object is complete last


def _checked(field: _Field, value: object) -> int | bool | str:
    wrong = _kind_of(value)
    if field.kind == "bool" and isinstance(value, bool):
        return value
    if field.kind == "string" and isinstance(value, str) and not isinstance(value, _Number):
        return value
    if isinstance(value, _Number) and field.kind not in ("bool", "string"):
        number = _whole(value)
        if number is not None:
            return number
        wrong = f"number {value[:SHOWN_CHARS_MAX]}"
    raise WrongRequest(
        f"json: cannot unmarshal {wrong} into Go struct field "
        f"JSApiConsumerGetNextRequest.{field.prefix}{field.name} of type {field.kind}"
    )


def _whole(text: str) -> int | None:
    """Return the number if it is a whole one of 64 bits, else None."""
    digits = text.removeprefix("-")
    if not digits.isdigit() or len(digits) > len(str(INT64_MAX)):
        return None
    number = int(text)
    return number if -INT64_MAX - 1 <= number <= INT64_MAX else None


def _kind_of(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, _Number):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
