"""Options, and the file that they come from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from natsd.config.options import Options
from natsd.config.settings import Position


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """Options, and the file that they come from."""

    options: Options
    digest: str = ""
    path: Path | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    """Options of the command line, which override those of the file."""
    files: tuple[Path, ...] = ()
    """The file, and those that it includes."""
    places: Mapping[str, Position] = field(default_factory=dict)
    """Where the settings stand, by their names in natsd.config.changes; of a section its own place
    too."""
    warnings: tuple[str, ...] = ()
    """What nats-server would warn of too."""
    notes: tuple[str, ...] = ()
    """What only natsd remarks."""
