"""Request bodies with one field at an extreme value: `bodies_of(Model)` does this for every field.

    path        field names, as deep as the model goes: ("config", "backoff", 0)
    value       an extreme: the limits of the Go types, wrong types, odd texts

The fields are found in the model itself, so that a field that is added later is tried too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from natsd.jetstream.models.base import GoEnum, Model
from tests.store.crash import TORTURE

Path = tuple[str | int, ...]

SHARES = 4
"""Each field is tried with one in SHARES texts; with NATSD_TORTURE above 1, with all."""

NUMBERS = (
    *(0, 1, -1, 5, 99, 10**8, 10**9),
    *(2**31 - 1, 2**31, -(2**31), 2**32, 2**53),
    *(
        2**63 - 1,
        2**63 - 10**9,
        2**63,
        -(2**63),
        -(2**63) - 1,
        2**64 - 1,
        2**64,
        10**400,
        1.5,
        1e300,
    ),
)
TEXTS = (
    *("", "a", "C", ">", "*", ".", "..", "a.", "a b", "a..b", "a.>", "*.>", "a.>.b", "s.>", "-1"),
    *(
        "A" * 255,
        "A" * 256,
        "a" * 70_000,
        "x\r\nINFO {}\r\n",
        "\x00",
        "\x7f",
        "é",
        "\ud800",
        "/",
        "\\",
    ),
    *("{{wildcard(1)}}", "a.{{wildcard(2)}}", "a.{{partition(0,1)}}", "a.{{split(1,)}}", "$1.$2"),
    *("$JS.API.>", "$JS.API.STREAM.INFO.S", "$SYS.>", "_INBOX.>", "$KV.>", "100%", "10%", "-0"),
    *("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999-23:59", "1600-01-01T00:00:00Z"),
    *("2262-04-11T23:47:16.854775807Z", "1970-01-01T00:00:00Z", "2020-02-30T00:00:00Z"),
    *("create", "update", "none", "new", "s2", "memory"),
)
OTHERS = (None, True, False, [], {}, [None], [[]], [{}], {"": None}, {"a": "b"}, {"": ""})


def bodies_of(model: type[Model], base: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the path of each field of the model, and `base` with that field at each extreme."""
    for number, (path, kind) in enumerate(fields_of(model)):
        for value in values_of(kind, number):
            yield path, with_value(base, path, value)


def fields_of(model: type[Model]) -> Iterator[tuple[Path, Any]]:
    """Yield the path and the type of every field, including the fields of nested models."""
    for name, field in model.model_fields.items():
        for path, kind in _within(field.annotation):
            yield (name, *path), kind


def _within(kind: Any) -> Iterator[tuple[Path, Any]]:
    yield (), kind
    for model in _models(kind):
        inner: Path = (0,) if getattr(kind, "__origin__", None) is list else ()
        for path, below in fields_of(model):
            yield (*inner, *path), below
    if getattr(kind, "__origin__", None) is list and not _models(kind):
        yield (0,), get_args(kind)[0]
    if getattr(kind, "__origin__", None) is dict:
        yield ("key",), get_args(kind)[1]


def _models(kind: Any) -> list[type[Model]]:
    kinds = [kind, *get_args(kind)]
    return [each for each in kinds if isinstance(each, type) and issubclass(each, Model)]


def values_of(kind: Any, number: int = 0) -> Iterator[Any]:
    """Yield extremes for a field of this type: its enum values, values of its type, wrong types.

    There are many texts, so `number`, the field's number, chooses a share of them.
    """
    if isinstance(kind, type) and issubclass(kind, GoEnum):
        yield from (each.value for each in kind)
    is_number = kind is int or int in get_args(kind)
    texts = TEXTS if TORTURE > 1 else TEXTS[number % SHARES :: SHARES]
    yield from NUMBERS if is_number else NUMBERS[:2]
    yield from texts if kind is str else texts[:2]
    yield from OTHERS


def with_value(base: Any, path: Path, value: Any) -> Any:
    """Return `base` with the value at `path`; missing objects on the way are made."""
    if not path:
        return value
    step, *rest = path
    if isinstance(step, int):
        return [with_value(base[0] if isinstance(base, list) and base else {}, tuple(rest), value)]
    members = base if isinstance(base, dict) else {}
    return {**members, step: with_value(members.get(step, {}), tuple(rest), value)}
