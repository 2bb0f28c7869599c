"""What all models have in common: they read and write JSON as nats-server's Go structs do.

Reading (`model_validate(value, context={"strict": bool})`, strict unless told otherwise):
- a field's name may be in any case; an unknown one is an error when strict, and nothing otherwise;
- `null` is the zero value; a number is whole and fits the Go type; nothing is converted.

Writing:
- the order of the fields is that of the Go struct;
- an `Omitempty` field is left out when it has its zero value, which is its default;
- the fields of an `Embedded` model stand among those of the model it is in; None adds nothing;
- a base class is what an embedded struct is in Go.

Source: nats-server's structs, Go's encoding/json.
"""

import base64
import binascii
import contextlib
import json
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Self, TypeVar, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from natsd.core.quoting import quoted
from natsd.jetstream.models.times import TimeError, format_time, parse_time

T = TypeVar("T")

_OMITEMPTY: Final = "omitempty"
_EMBEDDED: Final = "embedded"

Omitempty = Annotated[T, _OMITEMPTY]
Items = Annotated[list[T], FailFast()]
"""A list; the first item that is wrong ends the reading, however many there are."""
Embedded = Annotated[T, _EMBEDDED]


class GoType(NamedTuple):
    """The name by which Go's errors call the type."""

    name: str


class GoError(PydanticCustomError):
    """An error whose text is the whole answer."""

    @classmethod
    def saying(cls, text: str) -> "GoError":
        return cls("go", "{text}", {"text": text})


def _read_time(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, str):
        if info.context is not None:  # this is JSON, and not a call of ours
            raise GoError.saying("Time.UnmarshalJSON: input is not a JSON string")
        return value
    try:
        return parse_time(value)
    except TimeError as error:
        raise GoError.saying(str(error)) from None


def _read_base64(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise GoError.saying(f"illegal base64 data: {error}") from None


Int = Annotated[int, Field(ge=-(2**63), lt=2**63), GoType("int")]
Int32 = Annotated[int, Field(ge=-(2**31), lt=2**31), GoType("int32")]
Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63), GoType("int64")]
Uint64 = Annotated[int, Field(ge=0, lt=2**64), GoType("uint64")]
DurationNs = Annotated[int, Field(ge=-(2**63), lt=2**63), GoType("time.Duration")]
TimeNs = Annotated[
    int, BeforeValidator(_read_time), PlainSerializer(format_time), GoType("time.Time")
]
"""Nanoseconds since 1970, 0: Go's zero time; RFC 3339 in JSON."""
OptionalTimeNs = Annotated[
    int | None,
    BeforeValidator(_read_time),
    PlainSerializer(lambda time_ns: None if time_ns is None else format_time(time_ns)),
    GoType("time.Time"),
]
"""A time that may be missing, which the zero time is not: Go's pointer to a time."""
Base64 = Annotated[
    bytes,
    BeforeValidator(_read_base64),
    PlainSerializer(lambda data: base64.b64encode(data).decode()),
    GoType("[]uint8"),
]


class GoEnum(StrEnum):
    """An enumeration that JSON shows as a word."""

    @classmethod
    def read(cls, value: object) -> Self:
        """The member that a JSON value stands for; raises GoError."""
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                return cls(value)
        raise GoError.saying(cls.refusal(json.dumps(value)))

    @classmethod
    def reads(cls, value: object) -> bool:
        """Whether it says itself what is wrong with such a value, and not its field."""
        return True

    @classmethod
    def refusal(cls, raw: str) -> str:
        """What is said of a value that is none of its words; `raw` is its JSON."""
        return f"can not unmarshal {quoted(raw)}"


class Model(BaseModel):
    """A Go struct."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    go_name: ClassVar[str]
    """Of the struct, in Go's errors; the class's own name unless it says otherwise."""
    go_is_pointer: ClassVar[bool] = False
    """Whether lists are of pointers to it."""

    _names: ClassVar[frozenset[str]]
    _zero_values: ClassVar[dict[str, object]]
    _embedded: ClassVar[frozenset[str]]
    _enums: ClassVar[dict[str, type[GoEnum]]]
    _items: ClassVar[dict[str, object]]  # of lists: what `null` is in them
    _maps: ClassVar[dict[str, object]]

    @classmethod
    def __pydantic_init_subclass__(cls, **_kwargs: object) -> None:
        if "go_name" not in cls.__dict__:
            cls.go_name = cls.__name__
        fields = cls.model_fields
        cls._names = frozenset(fields)
        cls._zero_values = {
            name: field.get_default(call_default_factory=True)
            for name, field in fields.items()
            if _OMITEMPTY in field.metadata
        }
        cls._embedded = frozenset(
            name for name, field in fields.items() if _EMBEDDED in field.metadata
        )
        cls._enums = {
            name: field.annotation
            for name, field in fields.items()
            if isinstance(field.annotation, type) and issubclass(field.annotation, GoEnum)
        }
        cls._items = {
            name: _zero_of(get_args(field.annotation)[0])
            for name, field in fields.items()
            if get_origin(field.annotation) is list
        }
        cls._maps = {
            name: get_args(field.annotation)[1]
            for name, field in fields.items()
            if get_origin(field.annotation) is dict
        }

    @model_validator(mode="before")
    @classmethod
    def _read_members(cls, value: object, info: ValidationInfo) -> object:
        if not isinstance(value, dict):
            return value
        members: dict[str, object] = {}
        for key, member in value.items():
            name = key if key in cls._names else _folded(key)
            if name not in cls._names:
                if info.context is None or info.context.get("strict", True):
                    raise GoError.saying(f"json: unknown field {quoted(key)}")
            elif name in cls._enums and cls._enums[name].reads(member):
                members[name] = cls._enums[name].read(member)
            elif name in cls._maps and isinstance(member, dict) and info.context is not None:
                members[name] = _up_to_first_wrong(member, cls._maps[name])
            elif name in cls._items and isinstance(member, list) and None in member:
                zero = cls._items[name]
                members[name] = [zero if each is None else each for each in member]
            elif member is not None:
                members[name] = member
        return members

    @model_serializer(mode="wrap")
    def _write_members(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        members: dict[str, Any] = {}
        for name, value in written.items():
            if name in self._embedded:
                members.update(value or {})
            elif name in self._maps and value:
                members[name] = dict(sorted(value.items()))
            elif name not in self._zero_values or getattr(self, name) != self._zero_values[name]:
                members[name] = value
        return members


def _zero_of(kind: object) -> object:
    """What Go makes of a `null` in a list."""
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    return "" if bare is str else 0 if bare is int else {}


def _up_to_first_wrong(members: dict[str, object], kind: object) -> dict[str, object]:
    """All, or the first member only that is not of that kind: its error is enough."""
    if None in members.values():
        zero = "" if kind is str else 0
        members = {key: zero if each is None else each for key, each in members.items()}
    for key, each in members.items():
        is_text, is_count = isinstance(each, str), type(each) is int and 0 <= each < 2**64
        if not (is_text if kind is str else is_count):
            return {key: each}
    return members


def _folded(key: object) -> str:
    return key.lower() if isinstance(key, str) else ""
