"""The base of all models: they read and write JSON as nats-server's Go structs do.

Reading (`model_validate(value, context={"strict": bool})`, strict by default):
- a field's name may be in any case; an unknown one is an error if strict, and ignored otherwise;
- `null` is the zero value; a number is whole and fits the Go type; nothing is converted.

Writing:
- the order of the fields is that of the Go struct;
- an `Omitempty` field is left out if it has its zero value, which is its default;
- the fields of an `Embedded` model stand among those of the model that contains it; None adds
  nothing;
- a base class corresponds to an embedded struct in Go.

Source: nats-server's structs, Go's encoding/json.
"""

import base64
import binascii
import contextlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Self, TypeVar, get_args, get_origin

import msgspec
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
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from natsd.core.quoting import quoted
from natsd.core.wall_time import TimeError
from natsd.jetstream.models.times import format_time, parse_time

T = TypeVar("T")

_OMITEMPTY: Final = "omitempty"
_EMBEDDED: Final = "embedded"

Omitempty = Annotated[T, _OMITEMPTY]
Items = Annotated[list[T], FailFast()]
"""A list whose reading ends at the first wrong item, however many there are."""
Embedded = Annotated[T, _EMBEDDED]


class GoType(NamedTuple):
    """Name of the type in Go's error messages."""

    name: str


class GoError(PydanticCustomError):
    """A validation error whose text is the complete answer."""

    @classmethod
    def saying(cls, text: str) -> "GoError":
        """Return an error with this text."""
        return cls("go", "{text}", {"text": text})


def _read_time(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, str):
        if info.context is not None:  # the value comes from JSON, not from this program
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
"""A time or None, which differs from the zero time: Go's pointer to a time."""
Base64 = Annotated[
    bytes,
    BeforeValidator(_read_base64),
    PlainSerializer(lambda data: base64.b64encode(data).decode()),
    GoType("[]uint8"),
]


class GoEnum(StrEnum):
    """An enumeration that is a word in JSON."""

    @classmethod
    def read(cls, value: object) -> Self:
        """Return the member for a JSON value. Raises GoError."""
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                return cls(value)
        raise GoError.saying(cls.refusal(json.dumps(value)))

    @classmethod
    def reads(cls, value: object) -> bool:
        """Return whether the enumeration reports such a wrong value itself, and not its field."""
        return True

    @classmethod
    def refusal(cls, raw: str) -> str:
        """Return the error text for a value that is none of its words; `raw` is its JSON."""
        return f"can not unmarshal {quoted(raw)}"


class Model(BaseModel):
    """A Go struct; the base of all models."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    go_name: ClassVar[str]
    """Name of the struct in Go's errors; the class's own name by default."""
    go_is_pointer: ClassVar[bool] = False
    """Whether lists hold pointers to the struct."""

    _names: ClassVar[frozenset[str]]
    _zero_values: ClassVar[dict[str, object]]
    _embedded: ClassVar[frozenset[str]]
    _enums: ClassVar[dict[str, type[GoEnum]]]
    _items: ClassVar[dict[str, object]]  # per list: the item that replaces `null`
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

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a model with these changes; without any it is this one, which never changes."""
        return super().model_copy(update=update, deep=deep) if update or deep else self

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


class Written(msgspec.Struct, omit_defaults=True, gc=False):
    """A Go struct that is only written, in a fraction of the time that a Model takes.

    Fields stand in their order, and a field with its default is left out. Fields may hold texts
    that were encoded before (msgspec.Raw).
    """

    def members(self) -> dict[str, Any]:
        """Return the members as JSON shows them."""
        shown: dict[str, Any] = msgspec.to_builtins(self, builtin_types=(msgspec.Raw,))
        return shown

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> CoreSchema:
        """Let fields of models hold such structs."""
        write = core_schema.plain_serializer_function_ser_schema(cls.members)
        return core_schema.is_instance_schema(cls, serialization=write)


def _zero_of(kind: object) -> object:
    """Return the zero value that Go makes of a `null` in a list."""
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    return "" if bare is str else 0 if bare is int else {}


def _up_to_first_wrong(members: dict[str, object], kind: object) -> dict[str, object]:
    """Return all members, or only the first one of a wrong kind: its error suffices."""
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
