"""Pushdown of Spark's filters on stream, seq, time, time_ns and subject.

- A filter that is applied exactly is taken: Spark does not evaluate it again. A filter that is
  applied in part narrows the read and stays with Spark. All others stay with Spark unchanged.
- One microsecond of the column `time` covers all 1,000 nanoseconds in it.
- With `last_per_subject`, the read gives the last message of each subject. Only filters that cannot
  select another message are taken: streams, subjects, and a lowest sequence.
- None of these columns is ever null.

Source: pyspark.sql.datasource, `DataSourceReader.pushFilters`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from natsd.core.routing import is_literal, is_valid_publish
from natsd.spark.offsets import SourceStreamState
from natsd.spark.subject_filters import Patterns, in_common
from natsd.spark.times import time_us

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

COLUMNS: Final = frozenset({"stream", "seq", "subject", "time", "time_ns"})
_US_NS: Final = 1000


@dataclass(frozen=True)
class Selection:
    """The wanted part of the streams; all bounds are inclusive, times are ns since the epoch.

    `subjects` empty: all subjects; `streams` None: all streams; a bound None: no bound.
    """

    subjects: Patterns = ()
    streams: frozenset[str] | None = None
    first_sequence: int = 1
    last_sequence: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    is_empty: bool = False
    last_per_subject: bool = False

    def wants(self, stream: SourceStreamState) -> bool:
        """Return whether the stream is part of the selection."""
        return not self.is_empty and (self.streams is None or stream.name in self.streams)

    @property
    def has_end(self) -> bool:
        """Whether the selection excludes messages that are stored in the future."""
        return self.last_sequence is not None or self.last_ns is not None

    def from_sequence(self, first: int) -> Selection:
        """Return the selection without sequences below `first`."""
        return replace(self, first_sequence=max(self.first_sequence, first))

    def to_sequence(self, last: int) -> Selection:
        """Return the selection without sequences above `last`."""
        known = self.last_sequence
        return replace(self, last_sequence=last if known is None else min(known, last))

    def from_ns(self, first: int) -> Selection:
        """Return the selection without times before `first` (ns since the epoch)."""
        known = self.first_ns
        return replace(self, first_ns=first if known is None else max(known, first))

    def to_ns(self, last: int) -> Selection:
        """Return the selection without times after `last` (ns since the epoch)."""
        known = self.last_ns
        return replace(self, last_ns=last if known is None else min(known, last))

    def of_streams(self, names: Iterable[str]) -> Selection:
        """Return the selection restricted to these streams."""
        names = frozenset(names)
        return replace(self, streams=names if self.streams is None else self.streams & names)

    def of_subjects(self, patterns: Patterns) -> Selection | None:
        """Return the selection restricted to the patterns.

        None: the resulting patterns overlap, and a server would refuse them.
        """
        try:
            both = in_common(self.subjects, patterns)
        except ValueError:
            return None
        return replace(self, is_empty=True) if both is None else replace(self, subjects=both)


@dataclass(frozen=True)
class NarrowedSelection:
    """A narrowed selection; `is_exact`: the filter is applied completely."""

    selection: Selection
    is_exact: bool = True


Bound = Callable[[Selection, int], Selection]
_BOUNDS: Final[dict[tuple[str, str], Bound]] = {
    ("seq", "from"): Selection.from_sequence,
    ("seq", "to"): Selection.to_sequence,
    ("time", "from"): lambda selection, us: selection.from_ns(us * _US_NS),
    ("time", "to"): lambda selection, us: selection.to_ns(us * _US_NS + _US_NS - 1),
    ("time_ns", "from"): Selection.from_ns,
    ("time_ns", "to"): Selection.to_ns,
}
_EDGES: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "EqualTo": (("from", 0), ("to", 0)),
    "EqualNullSafe": (("from", 0), ("to", 0)),
    "GreaterThan": (("from", 1),),
    "GreaterThanOrEqual": (("from", 0),),
    "LessThan": (("to", -1),),
    "LessThanOrEqual": (("to", 0),),
}


def push(selection: Selection, filters: Iterable[Filter]) -> tuple[Selection, list[Filter]]:
    """Return the narrowed selection, and the filters that stay with Spark."""
    left: list[Filter] = []
    for filter_ in filters:
        narrowed = narrow(selection, filter_)
        if narrowed is not None:
            selection = narrowed.selection
        if narrowed is None or not narrowed.is_exact:
            left.append(filter_)
    return selection, left


def narrow(selection: Selection, filter_: Filter) -> NarrowedSelection | None:
    """Return the selection narrowed by one filter; None: the filter cannot be applied here."""
    path: tuple[str, ...] = getattr(filter_, "attribute", ())
    if len(path) != 1 or path[0] not in COLUMNS:
        return None
    column, kind = path[0], type(filter_).__name__
    if kind == "IsNotNull":
        return NarrowedSelection(selection)
    value = getattr(filter_, "value", None)
    if column == "stream":
        return narrow_streams(selection, kind, value)
    if column == "subject":
        return narrow_subjects(selection, kind, value)
    return narrow_numbers(selection, column, kind, value)


def narrow_streams(selection: Selection, kind: str, value: Any) -> NarrowedSelection | None:
    """Return the selection narrowed by a filter on `stream`; None: it cannot be applied."""
    if kind in ("EqualTo", "EqualNullSafe") and isinstance(value, str):
        return NarrowedSelection(selection.of_streams([value]))
    if kind == "In" and all(isinstance(name, str) for name in value):
        return NarrowedSelection(selection.of_streams(value))
    return None


def narrow_subjects(selection: Selection, kind: str, value: Any) -> NarrowedSelection | None:
    """Return the selection narrowed by a filter on `subject`; None: it cannot be applied."""
    if kind == "StringStartsWith":
        return narrow_prefix(selection, value)
    if kind in ("EqualTo", "EqualNullSafe"):
        value = (value,)
    elif kind != "In":
        return None
    if not value or not all(isinstance(subject, str) and is_plain(subject) for subject in value):
        return None
    narrowed = selection.of_subjects(tuple(value))
    return NarrowedSelection(narrowed) if narrowed is not None else None


def narrow_prefix(selection: Selection, prefix: str) -> NarrowedSelection | None:
    """Return the selection narrowed by a prefix of subjects; None: it cannot be applied.

    A prefix of whole tokens becomes a pattern. If its last token is incomplete, the tokens before
    that one become the pattern, and the filter is not exact.
    """
    tokens, dot, rest = prefix.rpartition(".")
    if not dot or not is_plain(tokens):
        return None
    narrowed = selection.of_subjects((f"{tokens}.>",))
    return NarrowedSelection(narrowed, is_exact=not rest) if narrowed is not None else None


def is_plain(subject: str) -> bool:
    """Return whether the subject is a valid literal, which as a pattern matches only itself."""
    return is_valid_publish(subject) and is_literal(subject) and "\ufffd" not in subject


def narrow_numbers(
    selection: Selection, column: str, kind: str, value: Any
) -> NarrowedSelection | None:
    """Return the selection narrowed by a filter on a number; None: it cannot be applied.

    `column` is seq, time or time_ns; a filter In narrows to the range from the least to the
    greatest value.
    """
    edges: tuple[tuple[str, int], ...]
    if kind == "In":
        numbers = [number_of(column, each) for each in value]
        whole = [number for number in numbers if number is not None]
        if not whole or len(whole) < len(numbers):
            return None
        edges, is_exact = (("from", min(whole)), ("to", max(whole))), False
    else:
        number = number_of(column, value)
        if number is None or kind not in _EDGES:
            return None
        edges = tuple((side, number + shift) for side, shift in _EDGES[kind])
        is_exact = True
    if selection.last_per_subject:
        if column != "seq":
            return None
        is_exact = is_exact and all(side == "from" for side, _ in edges)
        edges = tuple(edge for edge in edges if edge[0] == "from")
    for side, bound in edges:
        selection = _BOUNDS[column, side](selection, bound)
    return NarrowedSelection(selection, is_exact)


def number_of(column: str, value: Any) -> int | None:
    """Return the value as a number (µs for `time`); None: it cannot be compared here."""
    if column == "time":
        return time_us(value) if hasattr(value, "tzinfo") else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
