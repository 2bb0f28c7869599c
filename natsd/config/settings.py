"""The kinds of settings: the values that each accepts, and its error texts.

- A setting is a dataclass field made by one of `whole`, `size`, `flag`, `text`, `word`, `secret`,
  `file`, `duration`, `section`: its default, its bounds and its meaning are in one place.
- `read(field, value)` returns the value in its type, or raises `OptionsError`: one line with the
  name of the setting, the error, and the meaning of the setting. A secret's value is never shown.
- If 0 would make no sense, it stands for the default, as in nats-server (`zero_is_default`).
- A section is a dataclass of settings within another; sections.pyx reads one from a mapping.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from datetime import timedelta
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from natsd.core.durations import DurationError, format_duration, parse_duration

_TRUE: Final = ("true", "yes", "on", "1")
_FALSE: Final = ("false", "no", "off", "0")
_ZEROS: Final = (0, "0", timedelta(0))
_SIZE_UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_INT64_MAX: Final = 2**63 - 1

Section = TypeVar("Section")
SettingPath = tuple[str | int, ...]


def _printable(text: str) -> str:
    """Return the text with control characters escaped: names of a file may contain any."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


class OptionsError(ValueError):
    """Settings are invalid; the text is one line for the user, without what looks like a secret.

    `path` leads from the section to the entry at fault by names and indexes, such as
    `("accounts", "A", "imports", 0)`; `setting` is a path of one name. `position` says where in a
    file the error is, and `others` are further errors that were found with this one.
    """

    def __init__(self, text: str, *, setting: str = "", path: "SettingPath" = ()) -> None:
        from natsd.config.secret_texts import without_secrets  # a start has no errors

        super().__init__(_printable(without_secrets(text)))
        self.path = path or (setting,)
        self.position: Position | None = None
        self.others: tuple[OptionsError, ...] = ()

    @property
    def every(self) -> "tuple[OptionsError, ...]":
        """This error and the others, as single errors in the order of their positions."""
        errors = (self, *(error for other in self.others for error in other.every))
        return tuple(sorted(errors, key=lambda error: error.position or NOWHERE))

    def within(self, name: str) -> "OptionsError":
        """Return the same error, and the others, as errors in the section of that name."""
        error = OptionsError(f"{name}: {self}")
        error.position = self.position
        error.others = tuple(other.within(name) for other in self.others)
        return error

    def at(self, place: object) -> "OptionsError":
        """Set the position to that of a key or value of a file, unless it is known already."""
        if self.position is None:
            self.position = getattr(place, "position", None)
        return self


class Position(NamedTuple):
    """A place in a configuration file; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


NOWHERE: Final = Position("", 0, 0)


def locate(
    error: OptionsError, tree: object, aliases: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Give the error, and the others, the positions to which their paths lead in a tree."""
    for each in error.every:
        if each.position is None:
            each.position = _place_of(tree, each.path, aliases)


def _place_of(tree: object, path: SettingPath, aliases: Mapping[str, str]) -> Position | None:
    """Return where an entry stands, or the closest one around it that the tree has."""
    place: Position | None = None
    for step in path:
        if isinstance(tree, Mapping):
            keys = (key for key in tree if key == step or _name_of(key, aliases) == step)
            key = next(keys, None)
            if key is None:
                break
            place, tree = getattr(key, "position", place), tree[key]
        elif isinstance(tree, list) and isinstance(step, int) and hasattr(tree, "position_of"):
            place, tree = tree.position_of(step), tree[step]
        else:
            break
    return place


def _name_of(spelling: object, aliases: Mapping[str, str]) -> str:
    """Return the name of the setting that a key stands for."""
    name = str(spelling).lower()
    return aliases.get(name, name)


def raise_together(errors: "list[OptionsError]") -> None:
    """Raise the first of the errors, with the others attached; do nothing if there are none."""
    if errors:
        first, *rest = errors
        first.others += tuple(rest)
        raise first


class NamedSections(Mapping[str, Section]):
    """An immutable mapping of names to sections of one kind, such as accounts."""

    def __init__(self, settings: Mapping[str, Section] = MappingProxyType({})) -> None:
        self._settings = dict(settings)

    def __getitem__(self, name: str) -> Section:
        return self._settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __hash__(self) -> int:
        return hash(tuple(self._settings.items()))

    def __repr__(self) -> str:
        return repr(self._settings)


@dataclass(frozen=True, slots=True)
class Kind:
    """The metadata of a setting; `read` converts a value or raises OptionsError."""

    read: Callable[[object], object]
    description: str
    zero_is_default: bool = False
    is_secret: bool = False
    is_section: bool = False


def whole(
    default: int,
    low: int,
    high: int,
    description: str,
    *,
    zero_is_default: bool = False,
) -> Any:
    """Declare a setting that is a whole number from `low` to `high`."""

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


def size(default: int, low: int, description: str, *, zero_is_default: bool = False) -> Any:
    """Declare a setting in bytes, at least `low`.

    It is a whole number, or a text that ends in K, M, G or T (powers of 1024).
    """

    def read(value: object) -> int:
        number = value
        if isinstance(value, str) and value[-1:] in _SIZE_UNITS and value[:-1].isdecimal():
            number = int(value[:-1]) * _SIZE_UNITS[value[-1]]
        if isinstance(number, bool) or not isinstance(number, int):
            raise OptionsError("must be a number of bytes, or a text that ends in K, M, G or T")
        if not low <= number <= _INT64_MAX:
            raise OptionsError(f"must be {low} to {_INT64_MAX}")
        return number

    return _setting(default, Kind(read, description, zero_is_default))


def flag(default: bool, description: str) -> Any:
    """Declare a setting that is true or false; yes/no, on/off and 1/0 are accepted too."""

    def read(value: object) -> bool:
        word = str(value).lower()
        if word not in _TRUE + _FALSE:
            raise OptionsError("must be true or false")
        return word in _TRUE

    return _setting(default, Kind(read, description))


def text(default: str, description: str) -> Any:
    """Declare a setting that is any text."""
    return _setting(default, Kind(read_text, description))


def word(default: str, words: Mapping[str, str], description: str) -> Any:
    """Declare a setting that is one of some words, in any case.

    `words` maps each spelling, in lower case, to the value.
    """

    def read(value: object) -> str:
        try:
            return words[read_text(value).lower()]
        except KeyError:
            raise OptionsError(f"must be one of {', '.join(words)}") from None

    return _setting(default, Kind(read, description))


def secret(description: str) -> Any:
    """Declare a setting whose text is not shown in messages; the default is empty."""
    kind = Kind(read_text, description, is_secret=True)
    return field(default="", repr=False, metadata={"kind": kind})


def file(description: str) -> Any:
    """Declare a setting that is a path, or None (the default)."""

    def read(value: object) -> Path | None:
        if value is None or value == "":
            return None
        if not isinstance(value, str | PathLike):
            raise OptionsError("must be a path")
        return Path(value)

    return _setting(None, Kind(read, description))


def duration(
    default: timedelta, description: str, *, words: Mapping[str, timedelta] | None = None
) -> Any:
    """Declare a setting that is a duration above zero: seconds, or a text such as `2m`.

    0 and `0s` stand for the default. `words` maps texts in lower case to durations.
    """

    def read(value: object) -> timedelta:
        if words and isinstance(value, str) and value.lower() in words:
            return words[value.lower()]
        try:
            span = parse_duration(value)
        except DurationError as error:
            raise OptionsError(f"is no duration such as '10s' or '2m': {error}") from None
        if not span:
            return default
        if span < timedelta(0):
            raise OptionsError("must be longer than 0s")
        return span

    return _setting(default, Kind(read, description, zero_is_default=True))


def section(default: Section, read: Callable[[object], Section], description: str) -> Any:
    """Declare a setting that is a section; `read` converts a value to the section."""
    return section_field(default, read, description)


def optional(read: Callable[[object], object], description: str, *, is_secret: bool = False) -> Any:
    """Declare a setting that is a section, or None (the default) if it is not given."""
    return section_field(None, read, description, is_secret=is_secret)


def section_field(
    default: Any, read: Callable[[object], Any], description: str, *, is_secret: bool = False
) -> Any:
    """Declare a setting with its own reader, whose errors are one line each."""
    kind = Kind(read, description, is_secret=is_secret, is_section=True)
    return field(default=default, repr=not is_secret, metadata={"kind": kind})


def texts(description: str, *, is_secret: bool = False) -> Any:
    """Declare a setting that is a tuple of texts; one text stands for itself alone."""
    return section_field((), read_texts, description, is_secret=is_secret)


def read_texts(given: object) -> tuple[str, ...]:
    """Return texts from one text or a sequence of texts. Raises OptionsError."""
    if isinstance(given, list) and {str}.issuperset(map(type, given)):
        return tuple(given)  # as a file has them; the rest is slower
    return read_items([given] if isinstance(given, str) else given, read_text, "texts")


def read_items(
    given: object, read_one: Callable[[object], Section], what: str
) -> tuple[Section, ...]:
    """Return a tuple of what `read_one` makes of each item of a sequence. Raises OptionsError."""
    if not isinstance(given, list | tuple):
        raise OptionsError(f"must be a list of {what}")
    found: list[Section] = []
    errors: list[OptionsError] = []
    for index, item in enumerate(given):
        try:
            found.append(read_one(item))
        except OptionsError as error:
            if error.position is None and hasattr(given, "position_of"):
                error.position = given.position_of(index)
            errors.append(error)
    raise_together(errors)
    return tuple(found)


def read_named(
    given: object, read_one: Callable[[object], Section], what: str
) -> NamedSections[Section]:
    """Return what `read_one` makes of each value of a mapping, by name. Raises OptionsError."""
    if not isinstance(given, Mapping):
        raise OptionsError(f"must be a mapping of {what}")
    found: dict[str, Section] = {}
    errors: list[OptionsError] = []
    for name, value in given.items():
        if getattr(name, "is_variable", False):
            continue
        try:
            found[str(name)] = read_one(value)
        except OptionsError as error:
            errors.append(error.at(name).within(str(name)))
    raise_together(errors)
    return NamedSections(found)


def read_named_texts(given: object) -> NamedSections[str]:
    """Return texts by name. Raises OptionsError."""
    return read_named(given, read_text, "texts")


class Settings:
    """Base class of a frozen dataclass whose fields are settings: each is read and checked."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Convert every setting to its type. Raises OptionsError."""
        for name, setting in settings_of(type(self)).items():
            object.__setattr__(self, name, read(setting, getattr(self, name)))
        self.check()

    def check(self) -> None:
        """Check settings that depend on each other. Raises OptionsError."""


def settings_of(kind: type) -> "dict[str, Field[Any]]":
    """Return the settings of a dataclass by name."""
    if kind not in _settings:
        _settings[kind] = {setting.name: setting for setting in fields(kind)}
    return _settings[kind]


_settings: "dict[type, dict[str, Field[Any]]]" = {}


def unknown_field(name: str, known: Iterable[str], aliases: Iterable[str] = ()) -> OptionsError:
    """Return the error for an unknown name in a section, with a similar known name as a hint."""
    return OptionsError(f'unknown field "{name}"{_similar(name, known, aliases)}')


def unknown_setting(name: str, known: Iterable[str]) -> OptionsError:
    """Return the error for an unknown setting of a program, with a similar name as a hint."""
    return OptionsError(f"unknown option {name!r}{_similar(name, known, ())}")


def _similar(name: str, known: Iterable[str], aliases: Iterable[str]) -> str:
    from difflib import get_close_matches  # imported on use: only errors need it

    similar = get_close_matches(name.lower(), list(known), 1) or get_close_matches(
        name.lower(), list(aliases), 1
    )
    return f"; did you mean {similar[0]!r}?" if similar else ""


def read(setting: "Field[Any]", value: object) -> object:
    """Return a value converted to the setting's type; raises OptionsError with one line."""
    kind: Kind = setting.metadata["kind"]
    if value == setting.default and type(value) is type(setting.default):
        return value
    if kind.zero_is_default and value in _ZEROS and value is not False:
        return setting.default
    try:
        return kind.read(value)
    except OptionsError as error:
        if kind.is_section:
            raise error.within(setting.name) from None
        not_it = "" if kind.is_secret else f", not {in_words(value)}"
        text = f"{setting.name} {error}{not_it} ({kind.description})"
        raise OptionsError(text, setting=setting.name) from None


def _setting(default: Any, kind: Kind) -> Any:
    return field(default=default, metadata={"kind": kind})


def read_text(value: object) -> str:
    """Return a text. Raises OptionsError."""
    if not isinstance(value, str):
        raise OptionsError("must be a text")
    return value


def in_words(value: object) -> str:
    """Return a wrong value as errors show it; a map or a list may hold secrets and is not shown."""
    if isinstance(value, Mapping):
        return "a map"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        return format_duration(value)
    return repr(value) if isinstance(value, str) else str(value)
