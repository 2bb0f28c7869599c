"""A dead letter: a copy of the whole message, with headers that say what happened to it.

payload            as it was
headers            as they were, but for those that begin with `Nats-`: these tell a server what
                   to do with a message (its id, how long it lives, what it replaces), and are
                   kept as `Nats-Original-…`
Nats-Msg-Id        stream, sequence, consumer and the message's time, in nanoseconds: the same
                   for the same message, and another one where a stream began anew
Nats-Dead-Letter-… where it came from, and why it is here
"""

from dataclasses import dataclass
from typing import Final

from natsd.jetstream.models.times import format_time
from natsd.store.codec.records import StoredMessage

REASON_BYTES_MAX: Final = 256

_VERSION: Final = b"NATS/1.0"
_END: Final = b"\r\n"
_HEEDED: Final = b"nats-"
_KEPT_AS: Final = b"Nats-Original-"
_CONTROLS: Final = dict.fromkeys([*range(32), 127], " ")


@dataclass(frozen=True, slots=True)
class Death:
    """The consumer that could not handle a message, the reason, and the number of deliveries."""

    stream: str
    consumer: str
    reason: str
    deliveries: int


def letter_headers(message: StoredMessage, death: Death) -> bytes:
    """Return the header block of the copy."""
    place = f"{death.stream}.{message.sequence}.{death.consumer}"
    told = {
        "Msg-Id": f"{place}.{message.time_ns}",
        "Dead-Letter-Stream": death.stream,
        "Dead-Letter-Sequence": message.sequence,
        "Dead-Letter-Consumer": death.consumer,
        "Dead-Letter-Reason": death.reason,
        "Dead-Letter-Deliveries": death.deliveries,
        "Dead-Letter-Subject": message.subject,
        "Dead-Letter-Time": format_time(message.time_ns),
    }
    lines = [_VERSION, *_kept_lines(message.headers or b"")]
    lines += [
        f"Nats-{name}: {value}".encode("utf-8", "surrogateescape") for name, value in told.items()
    ]
    return _END.join([*lines, b"", b""])


def _kept_lines(block: bytes) -> list[bytes]:
    """Return the lines of the message's own headers."""
    return [_renamed(line) for line in block.split(_END)[1:] if line]


def _renamed(line: bytes) -> bytes:
    is_heeded = line[: len(_HEEDED)].lower() == _HEEDED
    return _KEPT_AS + line[len(_HEEDED) :] if is_heeded else line


def reason_text(reason: bytes) -> str:
    """Return a client's reason in a form that a header may hold."""
    text = reason[:REASON_BYTES_MAX].decode(errors="replace")
    return text.translate(_CONTROLS).strip()
