"""The tree of a configuration file: maps, lists and values that know where they stand.

A `ConfigMap` is a dict, and a `ConfigList` a list. The keys of a map and the items of a list know
their place, so that the error of an option can name file, line and column. The other values are
str, int, float, bool and datetime.
"""

from natsd.config.settings import OptionsError, Position


class Source:
    """A file, or an environment variable, that was parsed."""

    __slots__ = ("name", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text

    def position(self, offset: int) -> Position:
        """Return the line and the column of a character."""
        line = self.text.count("\n", 0, offset) + 1
        return Position(self.name, line, offset - self.text.rfind("\n", 0, offset))


class ConfigMap(dict[str, object]):
    """A map of a configuration file; its keys are of the class `Key` (language.pyx)."""

    __slots__ = ()


class ConfigList(list[object]):
    """A list of a configuration file."""

    __slots__ = ("offsets", "source")

    source: Source
    offsets: list[int]

    def position_of(self, index: int) -> Position:
        """Return where an item stands."""
        return self.source.position(self.offsets[index])


class ConfigSyntaxError(OptionsError):
    """A file does not follow the rules of the configuration language."""

    def __init__(self, text: str, position: Position) -> None:
        super().__init__(text)
        self.position = position
