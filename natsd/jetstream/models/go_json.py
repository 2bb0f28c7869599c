"""JSON as Go reads and writes it, for all models.

- `decode` reads a request; its errors have the texts of Go's encoding/json.
- `encode` writes a response; `<`, `>` and `&` are escaped and maps are sorted, as Go does.
- Any bytes may come: they are decoded, or an InvalidJson is raised, and nothing else. The cost is
  linear in their number: reading ends at the first error.

Why not msgspec or pydantic alone: Go takes the names of fields in any case, the last of equal
fields, several consecutive values, and bytes that are no UTF-8; its errors say which character is
wrong in which place of the grammar, or which Go type a field has. msgspec and pydantic refuse the
former, and have texts of their own; clients and the differential tests compare the texts. pydantic
still checks the fields, and msgspec writes; here is only what they lack.

Source: Go's encoding/json; errors were compared with a running nats-server 2.14.
"""

import functools
import json
import re
from types import UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

import msgspec
from pydantic import ValidationError

from natsd.core.quoting import html_safe
from natsd.jetstream.models.base import GoEnum, GoType, Model, Written
from natsd.jetstream.models.json_syntax import depth_error, json_error, syntax_error

M = TypeVar("M", bound=Model)

DEPTH_MAX: Final = 128
"""Nesting levels of a request; no valid one has ten. nats-server's limit is 10,000."""
VALUES_MAX: Final = 8
"""Consecutive values of a body; no client sends more than one."""
SHOWN_CHARS_MAX: Final = 256
"""Characters of a wrong number that the error repeats."""
_BLANKS: Final = b" \t\r\n"
_NO_BLANK: Final = re.compile(r"[^ \t\r\n]")
_NO_TEXT: Final = re.compile("[\udc80-\udcff]")
"""Bytes that are not UTF-8, as `surrogateescape` decodes them."""

_KINDS: Final[dict[type, str]] = {str: "string", bool: "bool", list: "array", dict: "object"}
_GO_TYPES: Final[dict[object, str]] = {str: "string", bool: "bool", int: "int", bytes: "[]uint8"}


class InvalidJson(ValueError):
    """The text is not JSON, or does not fit the model; the message is Go's."""


class _Fraction(float):
    """A number that is not written as an integer; Go's errors repeat its text."""

    text: str

    def __new__(cls, text: str) -> "_Fraction":
        number = super().__new__(cls, text)
        number.text = text
        return number


def decode(model: type[M], body: bytes, *, strict: bool = True, is_one_value: bool = False) -> M:
    """Return the model that the body holds; an empty body and `null` give the defaults.

    Of several consecutive values, later members replace earlier ones, as Go's json.Decoder does
    when it is called until the end. With `is_one_value` there must be exactly one, as for Go's
    json.Unmarshal. Raises InvalidJson.
    """
    values = [_read_one(body)] if is_one_value else _read(body)
    try:
        for value in values[:-1]:
            model.model_validate({} if value is None else value, context={"strict": strict})
        whole = values[-1] if len(values) == 1 else functools.reduce(_merged, values)
        return model.model_validate({} if whole is None else whole, context={"strict": strict})
    except ValidationError as error:
        raise InvalidJson(_why(model, error)) from None


def encode(model: Model | Written) -> bytes:
    """Return the model as compact JSON."""
    return encode_value(model if isinstance(model, Written) else model.model_dump())


def encoded(model: Model) -> msgspec.Raw:
    """Return the model as compact JSON, to be part of a longer text."""
    return msgspec.Raw(encode(model))


def encode_value(value: Any) -> bytes:
    """Return a JSON value as compact JSON, escaped as Go does."""
    try:
        text = msgspec.json.encode(value)
    except UnicodeEncodeError:
        plain = value.members() if isinstance(value, Written) else value
        text = msgspec.json.encode(_replace_surrogates(plain))
    return html_safe(text)


def is_empty_object(body: bytes) -> bool:
    """Return whether the body is empty or an object without members.

    A request without a body may carry either.
    """
    if not body or body == b"{}":
        return True
    try:
        return _read_one(body) == {}
    except InvalidJson:
        return False


def is_object_or_array(body: bytes) -> bool:
    """Return whether an optional body is meant as JSON."""
    return body.lstrip(_BLANKS)[:1] in (b"{", b"[")


def _read_one(body: bytes) -> object:
    wrong = json_error(body)
    if wrong is not None:
        raise InvalidJson(wrong)
    return _read(body)[0]


def _read(body: bytes) -> list[object]:
    """Return all consecutive values; an empty body counts as `null`."""
    if not body.strip(_BLANKS):
        return [None]
    if body.count(b"[") + body.count(b"{") > DEPTH_MAX:
        too_deep = depth_error(body, DEPTH_MAX)
        if too_deep is not None:
            raise InvalidJson(too_deep)
    exact = body.decode("utf-8", "surrogateescape")
    text = exact if exact.isascii() else _NO_TEXT.sub("\ufffd", exact)
    values, at = list[object](), 0
    while at < len(text):
        try:
            value, at = _read_at(text, at)
        except RecursionError:  # in a value after the first one
            raise InvalidJson("exceeded max depth") from None
        except ValueError:
            before = exact[:at].encode("utf-8", "surrogateescape")
            wrong = syntax_error(body[len(before) :])
            raise InvalidJson(_moved(wrong, len(before))) from None
        values.append(value)
        if len(values) > VALUES_MAX:
            raise InvalidJson("too many values")
    return values


def _read_at(text: str, at: int) -> tuple[object, int]:
    """Return the value at that index, and the index of the next value. Raises ValueError."""
    value, end = _DECODER.raw_decode(text, _behind_blanks(text, at))
    if "\\u" in text:
        value = _replace_surrogates(value)
    return value, _behind_blanks(text, end)


def _behind_blanks(text: str, at: int) -> int:
    found = _NO_BLANK.search(text, at)
    return len(text) if found is None else found.start()


def _moved(wrong: str, by: int) -> str:
    """Add `by` to the offset in an error text, whose text was the rest of a longer one."""
    what, _, offset = wrong.rpartition(" at offset ")
    return f"{what} at offset {int(offset) + by}" if what else wrong


def _merged(before: Any, value: Any) -> Any:
    """Merge two values: the later one wins, and objects are merged member by member."""
    if not (isinstance(before, dict) and isinstance(value, dict)):
        return before if value is None else value
    return {
        **before,
        **{
            key: _merged(before[key], each) if key in before else each
            for key, each in value.items()
        },
    }


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _replace_surrogates(value: Any) -> Any:
    """Replace halves of surrogate pairs, which are no characters, by U+FFFD, as Go does."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_replace_surrogates(key): _replace_surrogates(item) for key, item in value.items()}
    return value


def _whole(text: str) -> int | _Fraction:
    """Return the number as an int, unless it is too long for any Go type."""
    return int(text) if len(text) <= 20 else _Fraction(text)


_DECODER: Final = json.JSONDecoder(
    parse_float=_Fraction, parse_int=_whole, parse_constant=_refuse_constant
)


def _why(model: type[Model], error: ValidationError) -> str:
    """Return the first error in Go's words."""
    first = error.errors(include_url=False)[0]
    if first["type"] == "go":
        return first["msg"]
    value, location = first["input"], first["loc"]
    if not location:
        return f"json: cannot unmarshal {_kind(value)} into Go value of type server.{model.go_name}"
    struct, path, target = _walk(model, location)
    name = _type_name(target)
    found = _kind(value)
    if found == "number" and name.removeprefix("u").startswith(("int", "time.")):
        found = f"number {_number_text(value)}"
    return f"json: cannot unmarshal {found} into Go struct field {struct}.{path} of type {name}"


def _walk(model: type[Model], location: tuple[int | str, ...]) -> tuple[str, str, object]:
    """Return the innermost struct, the path of fields from the outermost, and the type there."""
    path: list[str] = []
    target: object = model
    for step in location:
        target = _bare(target)
        if isinstance(target, type) and issubclass(target, Model):
            model = target
            path += [*_embedding(model, str(step)), str(step)]
            field = model.model_fields[str(step)]
            target = field.annotation
            if field.metadata:
                target = Annotated[target, *field.metadata]
        else:
            target = get_args(target)[-1]
    return model.go_name, ".".join(path), _bare(target) if _go_type(target) is None else target


def _embedding(model: type[Model], field: str) -> list[str]:
    """Return the embedded struct that declares the field; empty if the model itself does."""
    owners = [base for base in model.__mro__ if issubclass(base, Model)]
    owner = [base for base in owners if field in base.model_fields][-1]
    return [] if owner is model else [owner.go_name]


def _bare(target: object) -> object:
    """Return the type without annotations and without `None`."""
    while get_origin(target) in (Annotated, Union, UnionType):
        arguments = get_args(target)
        if get_origin(target) is Annotated:
            target = arguments[0]
        else:
            target = next(item for item in arguments if item is not type(None))
    return target


def _go_type(target: object) -> str | None:
    if get_origin(target) is not Annotated:
        return None
    return next((item.name for item in get_args(target)[1:] if isinstance(item, GoType)), None)


def _type_name(target: object) -> str:
    named = _go_type(target)
    if named is not None:
        return named
    target = _bare(target)
    arguments = get_args(target)
    if get_origin(target) is list:
        item = _bare(arguments[0])
        is_pointer = isinstance(item, type) and issubclass(item, Model) and item.go_is_pointer
        return ("[]*" if is_pointer else "[]") + _type_name(arguments[0])
    if get_origin(target) is dict:
        return f"map[{_type_name(arguments[0])}]{_type_name(arguments[1])}"
    if isinstance(target, type) and issubclass(target, Model):
        return f"server.{target.go_name}"
    if isinstance(target, type) and issubclass(target, GoEnum):
        return "string"
    return _GO_TYPES[target]


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "number")


def _number_text(value: object) -> str:
    return value.text[:SHOWN_CHARS_MAX] if isinstance(value, _Fraction) else str(value)
