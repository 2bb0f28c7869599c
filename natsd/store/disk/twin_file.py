"""A small file of a store directory, kept as two files: the loss of either one costs nothing.

    meta.json        ─┐ the same bytes: generation, place, body; each holds them twice
    meta.json.copy   ─┘ (doubled_file.py)

Promise
- If one of the two files is missing, cut, unreadable, damaged, older than the other, or belongs to
  another place, that is reported, and the content is read from the good file; `replace_twins`
  makes both whole again.
- The newest generation counts. A write makes both files new and durable before it returns; a crash
  leaves the old body or the new one.
- A write that fails leaves the old body: if a file had its new name already, the old body is
  written again as a newer generation. If even that fails, it is logged, since the next start may
  find either body.
- A file of generation 0 has no second file and no place: it was written by an earlier version.
- Two files that agree on another place were moved there by hand, and are believed.

`place` is the first file's path in the store directory. Everything here blocks on the disk and
raises OSError.
"""

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from natsd.store.disk.disk import Disk
from natsd.store.disk.doubled_file import (
    Content,
    Doubled,
    decode_doubled,
    encode_doubled,
    read_file,
    write_unfinished,
)

COPY_SUFFIX: Final = ".copy"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TwinDamage:
    """Damage of one of the two files; `length` 0: all of the file is damaged."""

    path: Path
    offset: int
    length: int
    what: str

    def __str__(self) -> str:
        where = f" ({self.length} bytes at {self.offset})" if self.length else ""
        return f"{self.path}: {self.what}{where}"


@dataclass(frozen=True, slots=True)
class Twins:
    """The content of the two files; `versions` are newest first, none if neither file verifies."""

    versions: tuple[Content, ...] = ()
    damage: tuple[TwinDamage, ...] = ()
    is_whole: bool = False  # both files are there, good, and of one generation

    @property
    def generation(self) -> int:
        """Generation of the newest version; 0: there is none."""
        return self.versions[0].generation if self.versions else 0


def copy_of(path: Path) -> Path:
    """Return the path of the second file."""
    return path.with_name(path.name + COPY_SUFFIX)


def twins_exist(disk: Disk, path: Path) -> bool:
    """Return whether either of the two files exists."""
    return disk.exists(path) or disk.exists(copy_of(path))


def read_twins(disk: Disk, path: Path, place: str) -> Twins:
    """Read both files. Raises OSError if one cannot be read and the other does not verify."""
    found: list[tuple[Path, Content]] = []
    damage: list[TwinDamage] = []
    missing: list[Path] = []
    failure: OSError | None = None
    known: tuple[bytes, Doubled] | None = None  # what was read of the first file
    for each in (path, copy_of(path)):
        try:
            data = read_file(disk, each)
            doubled = decode_doubled(data) if known is None or known[0] != data else known[1]
            known = data, doubled
        except FileNotFoundError:
            missing.append(each)
            continue
        except OSError as error:
            failure = error
            damage.append(TwinDamage(each, 0, 0, f"cannot be read: {error}"))
            continue
        damage += [
            TwinDamage(each, bad.offset, bad.length, "copy does not verify")
            for bad in doubled.damage
        ]
        if doubled.content is not None:
            found.append((each, doubled.content))
    if failure is not None and not found:
        raise failure
    versions, misplaced = _of_place(found, place)
    damage += misplaced
    newest = max((content.generation for _, content in versions), default=0)
    if versions and newest:
        damage += [TwinDamage(each, 0, 0, "is missing") for each in missing]
    damage += _outdated(versions, newest)
    versions.sort(key=lambda each: -each[1].generation)
    is_whole = newest > 0 and not damage
    return Twins(tuple(content for _, content in versions), tuple(damage), is_whole)


def replace_twins(disk: Disk, path: Path, magic: bytes, body: bytes, place: str) -> None:
    """Give both files this body; it is on disk on return.

    Raises OSError; then the old body is still there, or it is logged that it may not be.
    """
    try:
        before = read_twins(disk, path, place)
    except OSError:
        before = Twins()
    new = Content(magic, body, before.generation + 1, place)
    unfinished = _write_both(disk, path, new)
    try:
        _rename_both(disk, path, unfinished)
    except OSError as error:
        if before.versions:
            _put_back(disk, path, before.versions[0], new.generation + 1, error)
        raise


def new_twins(name: str, magic: bytes, body: bytes, place: str) -> dict[str, bytes]:
    """Return the bytes of both files, by name, for a directory that is yet to be made."""
    data = encode_doubled(Content(magic, body, 1, place))
    return {name: data, name + COPY_SUFFIX: data}


def remove_twins(disk: Disk, path: Path) -> None:
    """Remove both files; the removal is on disk on return."""
    for each in (path, copy_of(path)):
        if disk.exists(each):
            disk.unlink(each)
    disk.sync_dir(path.parent)


def _of_place(
    found: list[tuple[Path, Content]], place: str
) -> tuple[list[tuple[Path, Content]], list[TwinDamage]]:
    """Return the versions that belong to this place, and a report of those that do not."""
    here = [each for each in found if each[1].generation == 0 or each[1].place == place]
    others = [each for each in found if each not in here]
    damage = [
        TwinDamage(path, 0, 0, f"belongs to {content.place}, not to {place}")
        for path, content in others
    ]
    if len(others) == 2 and others[0][1].place == others[1][1].place:
        return others, damage
    return here, damage


def _outdated(versions: list[tuple[Path, Content]], newest: int) -> list[TwinDamage]:
    damage = [
        TwinDamage(path, 0, 0, "is older than the other file")
        for path, content in versions
        if content.generation < newest
    ]
    if len(versions) == 2 and not damage and versions[0][1] != versions[1][1]:
        damage.append(TwinDamage(versions[1][0], 0, 0, "differs from the other file"))
    return damage


def _write_both(disk: Disk, path: Path, content: Content) -> list[Path]:
    data = encode_doubled(content)
    return [write_unfinished(disk, each, data) for each in (path, copy_of(path))]


def _rename_both(disk: Disk, path: Path, unfinished: list[Path]) -> None:
    for source, target in zip(unfinished, (path, copy_of(path)), strict=True):
        disk.rename(source, target)
    disk.sync_dir(path.parent)


def _put_back(disk: Disk, path: Path, before: Content, generation: int, why: OSError) -> None:
    """Write the old body again after a write that failed in the middle.

    One of the two files is enough, since it then has the newest generation.
    """
    data = encode_doubled(replace(before, generation=generation))
    is_back, failure = False, why
    for each in (path, copy_of(path)):
        try:
            disk.rename(write_unfinished(disk, each, data), each)
            is_back = True
        except OSError as error:
            failure = error
    try:
        disk.sync_dir(path.parent)
    except OSError as error:
        is_back, failure = False, error
    if not is_back:
        _logger.error(
            "%s: not replaced (%s), and not certain to be put back (%s): the next start may find"
            " either content",
            path,
            why,
            failure,
        )
