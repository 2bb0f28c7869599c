"""Imports and cimports obey the contracts of pyproject.toml, in compiled modules too.

import-linter reads `.py` only: it sees neither the imports of a `.pyx` nor the importers of one.
"""

import tomllib
from dataclasses import dataclass
from typing import Any

import pytest

from tests.source.reading import ROOT, Source, source_of, sources

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]


def contracts(kind: str) -> list[dict[str, Any]]:
    return [contract for contract in SETTINGS["contracts"] if contract["type"] == kind]


@dataclass(frozen=True)
class Layers:
    package: str
    depths: dict[str, int]  # rooms of equal depth do not import each other

    def room_of(self, module: str) -> str | None:
        inside = module.removeprefix(f"{self.package}.")
        return None if inside == module else inside.split(".")[0]

    def is_broken_by(self, importer: str, imported: str) -> bool:
        above, below = self.room_of(importer), self.room_of(imported)
        if above == below or above not in self.depths or below not in self.depths:
            return False
        return self.depths[above] >= self.depths[below]


LAYERS = [
    Layers(
        contract["containers"][0],
        {
            room.strip("() "): depth
            for depth, line in enumerate(contract["layers"])
            for room in line.split("|")
        },
    )
    for contract in contracts("layers")
]
BESIDE = contracts("layers")[0]["exhaustive_ignores"]


@dataclass(frozen=True)
class Forbidden:
    sources: list[str]
    targets: list[str]


FORBIDDEN = [
    Forbidden(contract["source_modules"], contract["forbidden_modules"])
    for contract in contracts("forbidden")
]


def is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def breaches(source: Source) -> list[str]:
    """Return this file's imports that break a contract."""
    found = []
    for imported in source.imports:
        upward = any(layers.is_broken_by(source.module, imported.module) for layers in LAYERS)
        forbidden = any(
            any(is_in(source.module, package) for package in rule.sources)
            and any(is_in(imported.module, package) for package in rule.targets)
            for rule in FORBIDDEN
        )
        if upward or forbidden:
            found.append(f"{source.path}:{imported.line} imports {imported.module}")
    return found


@pytest.mark.parametrize("source", sources("natsd"), ids=lambda source: str(source.path))
def test_imports_keep_to_the_contracts(source: Source) -> None:
    assert breaches(source) == []


@pytest.mark.parametrize("source", sources("natsd"), ids=lambda source: str(source.path))
def test_every_file_stands_in_a_room(source: Source) -> None:
    assert LAYERS[0].room_of(source.module) in {None, *LAYERS[0].depths, *BESIDE}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("natsd/core/sample.pyx", "from natsd.accounts.account cimport Account\n"),
        ("natsd/core/sample.pxd", "cimport natsd.server.server\n"),
        ("natsd/core/sample.pyx", "def f():\n    from ..config import options\n"),
        ("natsd/accounts/sample.py", "from natsd import clients\n"),
        ("natsd/core/sample.pyx", "from natsd.bench import load\n"),
        ("natsd/store/block/sample.pyx", "from natsd.store.log.message_log cimport Log\n"),
        ("natsd/store/disk/sample.py", "from natsd.store.sequence_set import SequenceSet\n"),
    ],
)
def test_a_breach_is_seen(path: str, text: str) -> None:
    assert len(breaches(source_of(text, path))) == 1


def test_what_is_allowed_is_allowed() -> None:
    text = "from natsd.core.routing cimport SubList\nfrom natsd import __version__, version\n"
    assert breaches(source_of(text, "natsd/accounts/sample.pyx")) == []
