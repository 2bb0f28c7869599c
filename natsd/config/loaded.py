"""Options, and the file that they come from."""

from dataclasses import dataclass
from pathlib import Path

from natsd.config.options import Options


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """Options, and the file that they come from."""

    options: Options
    digest: str = ""
    path: Path | None = None
    files: tuple[Path, ...] = ()
    """The file, and those that it includes."""
    warnings: tuple[str, ...] = ()
    """What nats-server would warn of too."""
    notes: tuple[str, ...] = ()
    """What only natsd remarks."""
