"""Profiles in the format of pprof: a gzipped protocol buffer message.

    Profile   1 sample_type*  2 sample*  4 location*  5 function*  6 string_table*
              9 time_nanos  10 duration_nanos  11 period_type  12 period  14 default_sample_type
    Sample    1 location_id*, the innermost frame first   2 value*, one for each sample_type
    Location  1 id   4 line (1 function_id, 2 line)
    Function  1 id   2 name   3 system_name   4 filename
    ValueType 1 type   2 unit

Texts are numbers of strings in the table, whose first string is empty. Ids begin with 1.

Source: https://github.com/google/pprof/blob/main/proto/profile.proto
"""

import gzip
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

_VARINT: Final = 0
_BYTES: Final = 2


class Frame(NamedTuple):
    """A place in a program; `name` is that of the function."""

    name: str
    file: str = ""
    line: int = 0


Stack = tuple[Frame, ...]
"""The frames of a stack, the innermost first."""


def encode_profile(
    kinds: Iterable[tuple[str, str]],
    samples: Mapping[Stack, tuple[int, ...]],
    *,
    time_ns: int,
    duration_ns: int = 0,
    period: int = 0,
) -> bytes:
    """Return a profile whose samples have a value for each kind, a name and a unit.

    `time_ns` is the Unix time at which the profile began, `duration_ns` how long it took, and
    `period` the units of the last kind between two samples. The last kind is shown by default.
    """
    return _Encoder().encode(list(kinds), samples, time_ns, duration_ns, period)


class _Encoder:
    """The tables of one profile, while it is made."""

    def __init__(self) -> None:
        self._strings: dict[str, int] = {"": 0}
        self._functions: dict[tuple[str, str], int] = {}
        self._locations: dict[Frame, int] = {}
        self._tables = bytearray()

    def encode(
        self,
        kinds: list[tuple[str, str]],
        samples: Mapping[Stack, tuple[int, ...]],
        time_ns: int,
        duration_ns: int,
        period: int,
    ) -> bytes:
        profile = bytearray()
        for kind in kinds:
            profile += _message(1, self._value_type(kind))
        for stack, values in samples.items():
            places = b"".join(_varint(self._location(frame)) for frame in stack)
            numbers = b"".join(map(_varint, values))
            profile += _message(2, _message(1, places) + _message(2, numbers))
        period_type = self._value_type(kinds[-1])
        shown = self._string(kinds[-1][0])
        profile += self._tables
        for text in self._strings:
            profile += _message(6, text.encode("utf-8", "replace"))
        profile += _number(9, time_ns) + _number(10, duration_ns)
        profile += _message(11, period_type) + _number(12, period) + _number(14, shown)
        return gzip.compress(profile, mtime=0)

    def _value_type(self, kind: tuple[str, str]) -> bytes:
        return _number(1, self._string(kind[0])) + _number(2, self._string(kind[1]))

    def _location(self, frame: Frame) -> int:
        if frame not in self._locations:
            number = self._locations[frame] = len(self._locations) + 1
            line = _number(1, self._function(frame)) + _number(2, frame.line)
            self._tables += _message(4, _number(1, number) + _message(4, line))
        return self._locations[frame]

    def _function(self, frame: Frame) -> int:
        key = frame.name, frame.file
        if key not in self._functions:
            number = self._functions[key] = len(self._functions) + 1
            name, file = self._string(frame.name), self._string(frame.file)
            texts = _number(2, name) + _number(3, name) + _number(4, file)
            self._tables += _message(5, _number(1, number) + texts)
        return self._functions[key]

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))


def _varint(number: int) -> bytes:
    """Return a number in groups of seven bits, the lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(content)) + content
