"""The kinds of settings there are: what each accepts, and how it says that it cannot.

- A setting is a dataclass field made by one of `whole`, `flag`, `text`, `secret`, `file`,
  `duration`: its default, its bounds and its meaning stand in one place.
- `read(field, value)` gives the value in its type, or raises `OptionsError`: one line that names
  the setting, what was wrong, and what the setting means. A secret's value is never shown.
- Where 0 would make no sense it stands for the default, as in nats-server (`zero_is_default`).
"""

from collections.abc import Callable
from dataclasses import Field, dataclass, field
from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import Any, Final

from natsd.config.durations import DurationError, format_duration, parse_duration

_TRUE: Final = ("true", "yes", "on", "1")
_FALSE: Final = ("false", "no", "off", "0")
_ZEROS: Final = (0, "0", timedelta(0))


class OptionsError(ValueError):
    """Settings that cannot be used; the text is one line for the user."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a setting accepts, and what it means."""

    read: Callable[[object], object]
    description: str
    zero_is_default: bool = False
    is_secret: bool = False


def whole(
    default: int,
    low: int,
    high: int,
    description: str,
    *,
    zero_is_default: bool = False,
) -> Any:
    """A whole number from low to high."""

    def read(value: object) -> int:
        try:
            if isinstance(value, bool) or not isinstance(value, int | str):
                raise ValueError
            number = int(value)
        except ValueError:
            raise OptionsError("must be a whole number") from None
        if not low <= number <= high:
            raise OptionsError(f"must be {low} to {high}")
        return number

    return _setting(default, Kind(read, description, zero_is_default))


def flag(default: bool, description: str) -> Any:
    """True or false; in text also yes/no, on/off."""

    def read(value: object) -> bool:
        word = str(value).lower()
        if word not in _TRUE + _FALSE:
            raise OptionsError("must be true or false")
        return word in _TRUE

    return _setting(default, Kind(read, description))


def text(default: str, description: str) -> Any:
    """Any text."""
    return _setting(default, Kind(_read_text, description))


def secret(description: str) -> Any:
    """A text that no message shows."""
    kind = Kind(_read_text, description, is_secret=True)
    return field(default="", repr=False, metadata={"kind": kind})


def file(description: str) -> Any:
    """A path, or None."""

    def read(value: object) -> Path | None:
        if value is None or value == "":
            return None
        if not isinstance(value, str | PathLike):
            raise OptionsError("must be a path")
        return Path(value)

    return _setting(None, Kind(read, description))


def duration(default: timedelta, description: str) -> Any:
    """A time span above zero; seconds, or a text such as `2m`. 0 is the default."""

    def read(value: object) -> timedelta:
        try:
            span = parse_duration(value)
        except DurationError as error:
            raise OptionsError(f"is no duration such as '10s' or '2m': {error}") from None
        if span <= timedelta(0):
            raise OptionsError("must be longer than 0s")
        return span

    return _setting(default, Kind(read, description, zero_is_default=True))


def read(setting: "Field[Any]", value: object) -> object:
    """The value in the setting's type; what is wrong with it is said in one line."""
    kind: Kind = setting.metadata["kind"]
    if value == setting.default and type(value) is type(setting.default):
        return value
    if kind.zero_is_default and value in _ZEROS and value is not False:
        return setting.default
    try:
        return kind.read(value)
    except OptionsError as error:
        shown = "" if kind.is_secret else f", not {_shown(value)}"
        raise OptionsError(f"{setting.name} {error}{shown} ({kind.description})") from None


def _setting(default: Any, kind: Kind) -> Any:
    return field(default=default, metadata={"kind": kind})


def _read_text(value: object) -> str:
    if not isinstance(value, str):
        raise OptionsError("must be a text")
    return value


def _shown(value: object) -> str:
    return format_duration(value) if isinstance(value, timedelta) else repr(value)
