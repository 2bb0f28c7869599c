"""Cron expressions of six fields: the next instant that matches in a time zone.

    second minute hour day-of-month month day-of-week       0-59 0-59 0-23 1-31 1-12|jan… 0-6|sun…

Syntax and meaning are nats-server's. The calendar is cronsim's, which works in local time and gets
every field as a list of numbers. If a clock change lies in between, cronsim is called again from
the change on:

    ───── offset 1 ─────┤change├───── offset 2 ─────        instants
      search from the start    search from the change

Promise
- An expression matches the instants whose local time has its numbers: a local time that the clocks
  skip does not match, one that they repeat matches twice.
- If one of the two day fields is a star, both must match; if both are restricted, one suffices.
- An expression that does not match within five years is invalid.

Source: nats-server's `parseCron` (cron.go); ADR-51. Results were compared with a running
nats-server 2.14.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Final

from cronsim import CronSim, CronSimError

YEARS_MAX: Final = 5
_SECOND_NS: Final = 1_000_000_000
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 (origin for local times of any zone)
_PROBE_S: Final = 7 * 86_400  # no zone changes its clocks twice within this time
_NUMBER: Final = re.compile(r"\+?[0-9]{1,18}", re.ASCII)


class InvalidCron(ValueError):
    """The text is not a cron expression, or never matches."""


@dataclass(frozen=True, slots=True)
class _CronField:
    least: int
    most: int
    names: tuple[str, ...] = ()


_MONTHS: Final = (
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
)
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: Final = (
    _CronField(0, 59),
    _CronField(0, 59),
    _CronField(0, 23),
    _CronField(1, 31),
    _CronField(1, 12, _MONTHS),
    _CronField(0, 6, _DAYS),
)


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression; `zone` None is UTC."""

    fields: str  # in cronsim's syntax
    zone: tzinfo | None = None

    def next_ns(self, after_ns: int) -> int:
        """Return the first matching instant in a later second than `after_ns`.

        Times are nanoseconds since 1970. Raises InvalidCron.
        """
        at_s = after_ns // _SECOND_NS
        year_max = self._local(at_s + 1).year + YEARS_MAX
        while True:
            offset_s = self._offset_s(at_s + 1)
            local = _EPOCH + timedelta(seconds=at_s + offset_s)
            try:
                found = next(CronSim(self.fields, local), None)
            except (CronSimError, OverflowError) as error:
                raise InvalidCron(str(error)) from None
            if found is None or found.year > year_max:
                raise InvalidCron("pattern exceeds maximum range")
            found_s = (found - _EPOCH) // timedelta(seconds=1) - offset_s
            change_s = self._first_change(at_s + 1, found_s)
            if change_s is None:
                return found_s * _SECOND_NS
            at_s = change_s - 1

    def _offset_s(self, at_s: int) -> int:
        if self.zone is None:
            return 0
        offset = datetime.fromtimestamp(at_s, self.zone).utcoffset()
        return 0 if offset is None else offset // timedelta(seconds=1)

    def _local(self, at_s: int) -> datetime:
        return _EPOCH + timedelta(seconds=at_s + self._offset_s(at_s))

    def _first_change(self, from_s: int, to_s: int) -> int | None:
        """Return the first second after `from_s`, up to `to_s`, with another offset; None: none."""
        if self.zone is None:
            return None
        offset_s, below_s = self._offset_s(from_s), from_s
        while below_s < to_s:
            above_s = min(below_s + _PROBE_S, to_s)
            if self._offset_s(above_s) != offset_s:
                return self._change_between(below_s, above_s)
            below_s = above_s
        return None

    def _change_between(self, below_s: int, above_s: int) -> int:
        offset_s = self._offset_s(below_s)
        while above_s - below_s > 1:
            middle_s = (below_s + above_s) // 2
            if self._offset_s(middle_s) == offset_s:
                below_s = middle_s
            else:
                above_s = middle_s
        return above_s


def parse_cron(text: str, zone: tzinfo | None = None) -> Cron:
    """Parse an expression. Raises InvalidCron."""
    parts = text.split()
    if len(parts) != len(_FIELDS):
        raise InvalidCron(f"pattern requires {len(_FIELDS)} fields, got {len(parts)}")
    fields = " ".join(_parse_field(part, field) for part, field in zip(parts, _FIELDS, strict=True))
    return Cron(fields, zone)


def _parse_field(text: str, field: _CronField) -> str:
    """Return a star, or all numbers of a field, in cronsim's syntax."""
    numbers, is_star = set[int](), False
    for part in filter(None, text.split(",")):
        found, is_all = _parse_range(part, field)
        numbers.update(found)
        is_star = is_star or is_all
    if not numbers:
        raise InvalidCron(f"no number in {text}")
    return "*" if is_star else ",".join(map(str, sorted(numbers)))


def _parse_range(text: str, field: _CronField) -> tuple[range, bool]:
    """Parse `5`, `1-5` or `*`, optionally with `/step`; return numbers and if it is a star."""
    span, *steps = text.split("/")
    ends = span.split("-")
    is_star = ends[0] in ("*", "?")
    if len(steps) > 1 or (len(ends) > 2 and not is_star):
        raise InvalidCron(f"too much in {text}")
    step = _parse_number(steps[0]) if steps else 1
    if is_star:
        first, last = field.least, field.most
    else:
        first = _parse_number(ends[0], field.names, field.least)
        last = _parse_number(ends[-1], field.names, field.least)
        if steps and len(ends) == 1:
            last = field.most
    if not field.least <= first <= last <= field.most or step == 0:
        raise InvalidCron(f"out of range: {text}")
    return range(first, last + 1, step), is_star and step == 1


def _parse_number(text: str, names: tuple[str, ...] = (), least: int = 0) -> int:
    if text.lower() in names:
        return names.index(text.lower()) + least
    if _NUMBER.fullmatch(text) is None:
        raise InvalidCron(f"no number: {text}")
    return int(text)
