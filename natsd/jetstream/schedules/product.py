"""The message that a schedule publishes: its own content, or another subject's last message.

Source: ADR-51; products were compared with a running nats-server 2.14.
"""

from dataclasses import dataclass

from natsd.jetstream.headers import (
    MESSAGE_ID,
    MESSAGE_TTL,
    NEXT_PURGE,
    ROLLUP,
    SCHEDULE_NEXT,
    SCHEDULE_ROLLUP,
    SCHEDULE_TARGET,
    SCHEDULE_TTL,
    SCHEDULER,
    header_value,
    with_header,
    without_headers,
)
from natsd.store.codec.records import StoredMessage

_NOT_KEPT = (
    b"Nats-Schedule",  # all headers of a schedule and of its products
    b"Nats-Expected-",
    f"{MESSAGE_ID}:".encode(),
    f"{MESSAGE_TTL}:".encode(),
    f"{ROLLUP}:".encode(),
)


@dataclass(frozen=True, slots=True)
class Product:
    """A message to be published."""

    subject: bytes
    headers: bytes
    data: bytes


def product_of(schedule: StoredMessage, content: StoredMessage, following: str | None) -> Product:
    """Return the message that the schedule publishes.

    `content` gives headers and payload. `following` is the time of the schedule's next message;
    None: there is none, and the schedule is purged.
    """
    asked = schedule.headers or b""
    headers = without_headers(content.headers or b"", *_NOT_KEPT)
    headers = with_header(headers, SCHEDULER, schedule.subject.encode("utf-8", "surrogateescape"))
    next_value = NEXT_PURGE if following is None else following.encode()
    headers = with_header(headers, SCHEDULE_NEXT, next_value)
    for wanted, name in ((SCHEDULE_TTL, MESSAGE_TTL), (SCHEDULE_ROLLUP, ROLLUP)):
        value = header_value(asked, wanted)
        if value:
            headers = with_header(headers, name, value)
    return Product(header_value(asked, SCHEDULE_TARGET) or b"", headers, content.data)
