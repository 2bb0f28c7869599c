"""The parameters of a monitoring request, and nats-server's error texts for unreadable ones."""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote_plus

_TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
_FALSE: Final = ("0", "f", "F", "FALSE", "false", "False")

_NO_HEADERS: Final[Mapping[str, str]] = {}

INT64_MAX: Final = 2**63 - 1
UINT64_MAX: Final = 2**64 - 1


_BAD_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")


def read_parameters(text: str) -> dict[str, str]:
    """Return the parameters after the `?` of a request, as Go's `url.ParseQuery` reads them.

    Of several with one name the first counts. One with a semicolon or a bad escape is left out.
    """
    parameters: dict[str, str] = {}
    for pair in text.split("&"):
        if pair and ";" not in pair and not has_bad_escape(pair):
            name, _, value = pair.partition("=")
            parameters.setdefault(unquote_plus(name), unquote_plus(value))
    return parameters


def has_bad_escape(text: str) -> bool:
    """Return whether a `%` is not followed by two hexadecimal digits."""
    return _BAD_ESCAPE.search(text) is not None


class BadParameter(Exception):
    """A request has a parameter that cannot be used; answered with status 400 and this text."""


class Query:
    """The parameters of one request, with typed access, and the headers of an HTTP request."""

    def __init__(
        self, parameters: Mapping[str, str], headers: Mapping[str, str] = _NO_HEADERS
    ) -> None:
        self.parameters = parameters
        self.headers = headers

    def text(self, name: str) -> str:
        """Return the parameter's text; empty if it is absent."""
        return self.parameters.get(name, "")

    def flag(self, name: str) -> bool:
        """Return a boolean as Go's `strconv.ParseBool` reads it; False if it is absent.

        Raises BadParameter for any other text.
        """
        text = self.text(name)
        if text in _TRUE:
            return True
        if text in _FALSE or not text:
            return False
        raise _unreadable("boolean", name, "ParseBool", text, "invalid syntax")

    def whole(self, name: str) -> int:
        """Return a 64-bit integer; 0 if it is absent. Raises BadParameter for other texts."""
        return self._number(name, "int", "Atoi", -INT64_MAX - 1, INT64_MAX)

    def unsigned(self, name: str) -> int:
        """Return an unsigned 64-bit integer; 0 if absent. Raises BadParameter for other texts."""
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
