"""The parameters of a monitoring request, and nats-server's words for those it cannot read."""

from collections.abc import Mapping
from typing import Final

_TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
_FALSE: Final = ("0", "f", "F", "FALSE", "false", "False")

INT64_MAX: Final = 2**63 - 1
UINT64_MAX: Final = 2**64 - 1


class BadParameter(Exception):
    """Answered with status 400 and this text."""


class Query:
    """Typed access to the parameters of one request."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self.parameters = parameters

    def text(self, name: str) -> str:
        """The parameter's text; empty when absent."""
        return self.parameters.get(name, "")

    def flag(self, name: str) -> bool:
        """A boolean as Go's strconv reads it; false when absent."""
        text = self.text(name)
        if text in _TRUE:
            return True
        if text in _FALSE or not text:
            return False
        raise _unreadable("boolean", name, "ParseBool", text, "invalid syntax")

    def whole(self, name: str) -> int:
        """A whole number; 0 when absent."""
        return self._number(name, "int", "Atoi", -INT64_MAX - 1, INT64_MAX)

    def unsigned(self, name: str) -> int:
        """A whole number from 0; 0 when absent."""
        return self._number(name, "uint64", "ParseUint", 0, UINT64_MAX)

    def _number(self, name: str, kind: str, function: str, low: int, high: int) -> int:
        text = self.text(name)
        if not text:
            return 0
        digits = text[1:] if low < 0 and text[0] in "+-" else text
        if not (digits.isascii() and digits.isdigit()):
            raise _unreadable(kind, name, function, text, "invalid syntax")
        if len(digits) > len(str(high)) or not low <= int(text) <= high:
            raise _unreadable(kind, name, function, text, "value out of range")
        return int(text)


def _unreadable(kind: str, name: str, function: str, text: str, why: str) -> BadParameter:
    return BadParameter(
        f"Error decoding {kind} for '{name}': strconv.{function}: parsing \"{text}\": {why}"
    )
