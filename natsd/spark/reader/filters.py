"""What `where` narrows: Spark's filters on stream, seq, time, time_ns and subject.

- A filter that is applied here exactly is taken: Spark does not evaluate it again. One that is
  applied in part narrows what is read and stays with Spark. All others stay with Spark untouched.
- A microsecond of the column `time` is the nanoseconds from its first to its last.
- Of `last_per_subject` what is read is the last message of each subject; only what cannot choose
  another one is taken: streams, subjects, and a lowest sequence.
- None of these columns is ever null.

Source: pyspark.sql.datasource, `pushFilters`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from natsd.core.subject import is_literal, is_valid_publish
from natsd.spark.offsets import StreamState
from natsd.spark.subject_filters import Patterns, in_common
from natsd.spark.times import time_us

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

COLUMNS: Final = frozenset({"stream", "seq", "subject", "time", "time_ns"})
_US_NS: Final = 1000


@dataclass(frozen=True)
class Selection:
    """What of the streams is wanted: all bounds inclusive, times in nanoseconds."""

    subjects: Patterns = ()
    streams: frozenset[str] | None = None
    first_sequence: int = 1
    last_sequence: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    is_empty: bool = False
    last_per_subject: bool = False

    def wants(self, stream: StreamState) -> bool:
        return not self.is_empty and (self.streams is None or stream.name in self.streams)

    @property
    def has_end(self) -> bool:
        """Whether messages that are yet to come are left out."""
        return self.last_sequence is not None or self.last_ns is not None

    def from_sequence(self, first: int) -> Selection:
        return replace(self, first_sequence=max(self.first_sequence, first))

    def to_sequence(self, last: int) -> Selection:
        known = self.last_sequence
        return replace(self, last_sequence=last if known is None else min(known, last))

    def from_ns(self, first: int) -> Selection:
        known = self.first_ns
        return replace(self, first_ns=first if known is None else max(known, first))

    def to_ns(self, last: int) -> Selection:
        known = self.last_ns
        return replace(self, last_ns=last if known is None else min(known, last))

    def of_streams(self, names: Iterable[str]) -> Selection:
        names = frozenset(names)
        return replace(self, streams=names if self.streams is None else self.streams & names)

    def of_subjects(self, patterns: Patterns) -> Selection | None:
        """None: a server would refuse what comes of it."""
        try:
            both = in_common(self.subjects, patterns)
        except ValueError:
            return None
        return replace(self, is_empty=True) if both is None else replace(self, subjects=both)


@dataclass(frozen=True)
class Narrowed:
    """The selection, and whether it says all that the filter says."""

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
    """What is to be read, and the filters that stay with Spark."""
    left: list[Filter] = []
    for filter_ in filters:
        narrowed = narrow(selection, filter_)
        if narrowed is not None:
            selection = narrowed.selection
        if narrowed is None or not narrowed.is_exact:
            left.append(filter_)
    return selection, left


def narrow(selection: Selection, filter_: Filter) -> Narrowed | None:
    """None: this filter says nothing that could be applied here."""
    path: tuple[str, ...] = getattr(filter_, "attribute", ())
    if len(path) != 1 or path[0] not in COLUMNS:
        return None
    column, kind = path[0], type(filter_).__name__
    if kind == "IsNotNull":
        return Narrowed(selection)
    value = getattr(filter_, "value", None)
    if column == "stream":
        return narrow_streams(selection, kind, value)
    if column == "subject":
        return narrow_subjects(selection, kind, value)
    return narrow_numbers(selection, column, kind, value)


def narrow_streams(selection: Selection, kind: str, value: Any) -> Narrowed | None:
    if kind in ("EqualTo", "EqualNullSafe") and isinstance(value, str):
        return Narrowed(selection.of_streams([value]))
    if kind == "In" and all(isinstance(name, str) for name in value):
        return Narrowed(selection.of_streams(value))
    return None


def narrow_subjects(selection: Selection, kind: str, value: Any) -> Narrowed | None:
    if kind == "StringStartsWith":
        return narrow_prefix(selection, value)
    if kind in ("EqualTo", "EqualNullSafe"):
        value = (value,)
    elif kind != "In":
        return None
    if not value or not all(isinstance(subject, str) and is_plain(subject) for subject in value):
        return None
    narrowed = selection.of_subjects(tuple(value))
    return Narrowed(narrowed) if narrowed is not None else None


def narrow_prefix(selection: Selection, prefix: str) -> Narrowed | None:
    """Whole tokens are a pattern; of a broken one, those before it narrow."""
    tokens, dot, rest = prefix.rpartition(".")
    if not dot or not is_plain(tokens):
        return None
    narrowed = selection.of_subjects((f"{tokens}.>",))
    return Narrowed(narrowed, is_exact=not rest) if narrowed is not None else None


def is_plain(subject: str) -> bool:
    """A subject that a message can have and that stands for itself as a pattern."""
    return is_valid_publish(subject) and is_literal(subject) and "\ufffd" not in subject


def narrow_numbers(selection: Selection, column: str, kind: str, value: Any) -> Narrowed | None:
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
    return Narrowed(selection, is_exact)


def number_of(column: str, value: Any) -> int | None:
    """None: no number that can be compared here."""
    if column == "time":
        return time_us(value) if hasattr(value, "tzinfo") else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
