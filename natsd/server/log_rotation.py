"""Names of rotated log files: `<file>.YYYY.MM.DD.hh.mm.ss.nnnnnnnnn`, which sort by age."""

import re
from datetime import datetime
from pathlib import Path

_STAMP = re.compile(r"\.\d{4}\.\d\d\.\d\d\.\d\d\.\d\d\.\d\d\.\d{1,9}")


def backup_name(path: Path, moment: datetime) -> Path:
    """Return the name to which a full log file is renamed."""
    stamp = moment.strftime("%Y.%m.%d.%H.%M.%S")
    return path.with_name(f"{path.name}.{stamp}.{moment.microsecond * 1000:09}")


def backups_of(path: Path) -> list[Path]:
    """Return the rotated files of a log file, oldest first."""
    return sorted(
        entry
        for entry in path.parent.iterdir()
        if entry.name.startswith(path.name) and _STAMP.fullmatch(entry.name[len(path.name) :])
    )
