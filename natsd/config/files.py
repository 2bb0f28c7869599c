"""Configuration files: a file and those that it includes become one tree.

- The name of an included file is relative to the directory of the file that includes it.
- A file that includes itself, directly or through others, is refused.
- All errors are OptionsError with a position.

Source: nats-server's `ParseFileWithChecksDigest` (conf/parse.go).
"""

import gc
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from natsd.config.language import Parser, digest
from natsd.config.settings import NOWHERE, OptionsError, Position
from natsd.config.tree import ConfigMap

FILE_BYTES_MAX = 256 << 20


class IncludeError(ValueError):
    """A file cannot be included; the text is one line for the user."""


@dataclass(slots=True)
class ParsedFile:
    """The tree of a file with its includes, and what was noticed."""

    tree: ConfigMap
    digest: str
    files: tuple[Path, ...]
    """All files that were read, the first one first."""
    warnings: list[tuple[Position, str]] = field(default_factory=list)


def parse_file(path: Path | str, environment: Mapping[str, str] = os.environ) -> ParsedFile:
    """Parse a configuration file. Raises OptionsError."""
    reading = _Reading(environment)
    name, path = str(path), Path(path)
    try:
        text = _text_of(path)
    except OSError as error:
        raise _nowhere(f"open {name}: {_reason(error)}") from None
    except IncludeError as error:
        raise _nowhere(str(error)) from None
    with nothing_collected():
        tree = reading.parse(text, path, (), name)
        value = digest(tree)
    return ParsedFile(tree, value, tuple(reading.files), reading.warnings)


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Disable garbage collection: a large configuration has a million objects, and none dies."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Reading:
    """The reading of one file with its includes."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.files: list[Path] = []
        self.warnings: list[tuple[Position, str]] = []

    def parse(
        self, text: str, path: Path, open_files: tuple[Path, ...], name: str = ""
    ) -> ConfigMap:
        """Parse one file, called `name` in errors; `open_files` are those that include it."""
        open_files = (*open_files, path.resolve())
        self.files.append(path)
        include = partial(self._include, path.parent, open_files)
        parser = Parser(text, name or str(path), include, self._environment)
        tree = parser.parse()
        self.warnings.extend(parser.warnings)
        return tree

    def _include(self, directory: Path, open_files: tuple[Path, ...], name: str) -> ConfigMap:
        """Return the tree of an included file. Raises OptionsError or IncludeError."""
        path = directory / name.lstrip("/")
        if name.startswith("/") and not path.exists():
            path = Path(name)
        if path.resolve() in open_files:
            cycle = " includes ".join(map(str, [*open_files, path.resolve()]))
            raise IncludeError(f"include cycle: {cycle}")
        try:
            text = _text_of(path)
        except OSError as error:
            raise IncludeError(
                f"error parsing include file {name!r}, open {path}: {_reason(error)}"
                f"{_similar_file(path)}"
            ) from None
        return self.parse(text, path, open_files)


def _text_of(path: Path) -> str:
    with path.open("rb") as file:
        raw = file.read(FILE_BYTES_MAX + 1)
    if len(raw) > FILE_BYTES_MAX:
        raise IncludeError(f"{path} is larger than {FILE_BYTES_MAX} bytes")
    return raw.decode(errors="replace")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _similar_file(path: Path) -> str:
    """Return a hint at a file of a similar name in the same directory."""
    from difflib import get_close_matches

    try:
        found = get_close_matches(path.name, os.listdir(path.parent), 1)
    except OSError:
        return ""
    return f"; did you mean {found[0]!r}?" if found else ""


def _nowhere(text: str) -> OptionsError:
    error = OptionsError(text)
    error.position = NOWHERE
    return error
