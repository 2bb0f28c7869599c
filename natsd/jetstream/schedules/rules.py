"""Rules for publishes of schedules, products and delayed messages, and the stored headers.

- The first broken rule is the answer. A stream without schedules refuses every schedule.
- A schedule is the last message of its subject: it is stored with `Nats-Rollup: sub`.
- A delayed message (Nats-Delay) is no schedule and ends none.
- A client may publish `Nats-Schedule-Next: purge` with the finished schedule in `Nats-Scheduler`:
  its message then replaces that schedule.

Source: ADR-51, nats-server's `nextMessageSchedule`; the order of the rules and the errors were
compared with a running nats-server 2.14.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from natsd.core.routing import is_valid_publish
from natsd.jetstream.errors import ErrorId
from natsd.jetstream.headers import (
    DELAY,
    MESSAGE_TTL,
    NEXT_PURGE,
    ROLLUP,
    SCHEDULE,
    SCHEDULE_NEXT,
    SCHEDULE_ROLLUP,
    SCHEDULE_SOURCE,
    SCHEDULE_TARGET,
    SCHEDULE_TIME_ZONE,
    SCHEDULE_TTL,
    SCHEDULER,
    header_value,
    with_header,
)
from natsd.jetstream.schedules.delay import InvalidDelay, due_ns
from natsd.jetstream.schedules.pattern import (
    InvalidPattern,
    InvalidTimeZone,
    Pattern,
    parse_pattern,
)
from natsd.jetstream.stream.lifetimes import InvalidLifetime, parse_lifetime
from natsd.store.codec.records import StoredMessage
from natsd.store.errors import MessageNotFound

IS_SCHEDULE: Final = 1
ENDS_SCHEDULE: Final = 2
IS_DELAYED: Final = 4

Captures = Callable[[bytes], bool]
"""Return whether a stream receives messages published to the subject."""

LastMessage = Callable[[str], StoredMessage | None]
"""Return the last message of a subject; None: it is not in memory. Raises MessageNotFound."""


@dataclass(frozen=True, slots=True)
class Scheduling:
    """Result for a publish that obeys the rules."""

    headers: bytes  # the headers to store
    kind: int  # bits of stream/entry.pxd's Scheduling


@dataclass(frozen=True, slots=True)
class ScheduleRules:
    """Rules of one stream.

    `captures` tells whether the stream receives messages to a subject. `last_message` includes
    messages that are not durable yet.
    """

    captures: Captures
    last_message: LastMessage
    allows_schedules: bool = False
    allows_lifetimes: bool = False

    def check(self, subject: bytes, headers: bytes, now_ns: int) -> Scheduling | ErrorId:
        """Check a message to `subject` with these stored headers, at time `now_ns` (wall clock)."""
        if header_value(headers, DELAY) is not None:
            return self._check_delay(headers, now_ns)
        try:
            pattern = pattern_of(headers)
            if pattern is not None:
                pattern.next_ns(now_ns, now_ns)
        except InvalidTimeZone:
            return self._or_disabled(ErrorId.JSMessageSchedulesTimeZoneInvalidErr)
        except InvalidPattern:
            return self._or_disabled(ErrorId.JSMessageSchedulesPatternInvalidErr)
        if pattern is not None:
            refused = self._check_schedule(subject, headers)
            if refused is not None:
                return refused
            if not header_value(headers, ROLLUP):
                headers = with_header(headers, ROLLUP, b"sub")
        refused, is_end = self._check_product(subject, headers)
        if refused is not None:
            return refused
        kind = (IS_SCHEDULE if pattern is not None else 0) | (ENDS_SCHEDULE if is_end else 0)
        return Scheduling(headers, kind)

    def _or_disabled(self, error: ErrorId) -> ErrorId:
        return error if self.allows_schedules else ErrorId.JSMessageSchedulesDisabledErr

    def _check_delay(self, headers: bytes, now_ns: int) -> Scheduling | ErrorId:
        """Check a delayed message, which may be neither a schedule nor the product of one."""
        if not self.allows_schedules:
            return ErrorId.JSMessageSchedulesDisabledErr
        if b"\r\nNats-Schedule" in headers:
            return ErrorId.JSMessageSchedulesPatternInvalidErr
        try:
            due_ns(header_value(headers, DELAY) or b"", now_ns)
        except InvalidDelay:
            return ErrorId.JSMessageSchedulesPatternInvalidErr
        lifetime = header_value(headers, MESSAGE_TTL)
        if lifetime and not _is_lifetime(lifetime):
            return ErrorId.JSMessageTTLInvalidErr
        return Scheduling(headers, IS_DELAYED)

    def _check_schedule(self, subject: bytes, headers: bytes) -> ErrorId | None:
        if not self.allows_schedules:
            return ErrorId.JSMessageSchedulesDisabledErr
        lifetime = header_value(headers, SCHEDULE_TTL) or b""
        if lifetime and not _is_lifetime(lifetime):
            return ErrorId.JSMessageSchedulesTTLInvalidErr
        if header_value(headers, SCHEDULE_ROLLUP) not in (None, b"", b"sub"):
            return ErrorId.JSMessageSchedulesRollupInvalidErr
        if lifetime and not self.allows_lifetimes:
            return ErrorId.JSMessageTTLDisabledErr
        target = header_value(headers, SCHEDULE_TARGET) or b""
        source = header_value(headers, SCHEDULE_SOURCE) or b""
        if target == subject or not is_valid_publish(target):
            return ErrorId.JSMessageSchedulesTargetInvalidErr
        if source and (source in (target, subject) or not is_valid_publish(source)):
            return ErrorId.JSMessageSchedulesSourceInvalidErr
        if not self.captures(target):
            return ErrorId.JSMessageSchedulesTargetInvalidErr
        if source and not self.captures(source):
            return ErrorId.JSMessageSchedulesSourceInvalidErr
        if (header_value(headers, ROLLUP) or b"sub").lower() != b"sub":
            return ErrorId.JSMessageSchedulesRollupInvalidErr
        return None

    def _check_product(self, subject: bytes, headers: bytes) -> tuple[ErrorId | None, bool]:
        """Check the headers of a product; return the broken rule, and if it ends a schedule."""
        following = header_value(headers, SCHEDULE_NEXT)
        scheduler = header_value(headers, SCHEDULER)
        if not following and not scheduler:
            return None, False
        invalid = ErrorId.JSMessageSchedulesSchedulerInvalidErr
        if following != NEXT_PURGE or not scheduler:
            return invalid, False
        if scheduler == subject or not is_valid_publish(scheduler):
            return invalid, False
        if not self.allows_schedules:
            return ErrorId.JSMessageSchedulesDisabledErr, False
        try:
            last = self.last_message(scheduler.decode("utf-8", "surrogateescape"))
        except MessageNotFound:
            return None, True
        if last is None:
            return ErrorId.JSStreamExpectedLastSeqPerSubjectNotReady, False
        return (None, True) if header_value(last.headers or b"", SCHEDULE) else (invalid, False)


def pattern_of(headers: bytes) -> Pattern | None:
    """Return the pattern in a message's headers. Raises InvalidTimeZone, InvalidPattern."""
    return parse_pattern(
        header_value(headers, SCHEDULE) or b"", header_value(headers, SCHEDULE_TIME_ZONE)
    )


def _is_lifetime(text: bytes) -> bool:
    try:
        parse_lifetime(text)
    except InvalidLifetime:
        return False
    return True
