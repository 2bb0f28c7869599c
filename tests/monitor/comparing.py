"""The comparison of two JSON values, field by field.

- Keys and their order, JSON types and values must be equal. Items of lists are compared in the
  order of what identifies them: nats-server's order is random.
- Times, spans and server ids differ by nature, and must have the same form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

FORMS: Final = {
    "time": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{0,8}[1-9])?Z"),
    "span": re.compile(r"(\d+(\.\d+)?(y|d|h|m|s|ms|µs|ns))+"),
    "server id": re.compile("N[A-Z2-7]{55}"),
}
NO_TIME: Final = "0001-01-01T00:00:00Z"
IDENTITY: Final = ("name", "id", "acc", "account", "local_subject", "subject", "qgroup", "sid")
"""Fields that identify an item of a list."""

Difference = tuple[str, str]
"""The path of a field, and what is different."""


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[Difference]:
    """Yield the differences between natsd's value and nats-server's."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        yield from _of_objects(ours, theirs, path)
    elif isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            yield path, f"{len(ours)} items, not {len(theirs)}"
        pairs = zip(sorted(ours, key=_identity), sorted(theirs, key=_identity), strict=False)
        for mine, other in pairs:
            yield from differences(mine, other, f"{path}[]")
    elif _kind(ours) != _kind(theirs) or (ours != theirs and not _have_one_form(ours, theirs)):
        yield path, f"{ours!r}, not {theirs!r}"


def _of_objects(ours: dict[str, Any], theirs: dict[str, Any], path: str) -> Iterator[Difference]:
    for name in ours.keys() - theirs.keys():
        yield f"{path}.{name}", f"only natsd has it: {ours[name]!r}"
    for name in theirs.keys() - ours.keys():
        yield f"{path}.{name}", f"only nats-server has it: {theirs[name]!r}"
    mine = [name for name in ours if name in theirs]
    other = [name for name in theirs if name in ours]
    if mine != other:
        yield path, f"order {mine}, not {other}"
    for name in other:
        yield from differences(ours[name], theirs[name], f"{path}.{name}")


def _kind(value: Any) -> str:
    """Return the JSON type; Go writes floats without a fraction as integers."""
    return "number" if type(value) in (int, float) else type(value).__name__


def _have_one_form(one: Any, other: Any) -> bool:
    """Return whether two values are texts of the same form."""
    if not (isinstance(one, str) and isinstance(other, str)) or NO_TIME in (one, other):
        return False
    return any(form.fullmatch(one) and form.fullmatch(other) for form in FORMS.values())


def _identity(item: Any) -> tuple[str, ...]:
    if not isinstance(item, dict):
        return (str(item),)
    return tuple(str(item.get(name, "")) for name in IDENTITY)
