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


ROOMS = [name.strip("()") for name in contracts("layers")[0]["layers"]]
BESIDE = contracts("layers")[0]["exhaustive_ignores"]


@dataclass(frozen=True)
class Forbidden:
    sources: list[str]
    targets: list[str]


FORBIDDEN = [
    Forbidden(contract["source_modules"], contract["forbidden_modules"])
    for contract in contracts("forbidden")
]


def room_of(module: str) -> str | None:
    package, _, rest = module.partition(".")
    return rest.split(".")[0] if package == "natsd" and rest else None


def is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def breaches(source: Source) -> list[str]:
    """Return this file's imports that break a contract."""
    own_room = room_of(source.module)
    found = []
    for imported in source.imports:
        room = room_of(imported.module)
        upward = own_room in ROOMS and room in ROOMS and ROOMS.index(room) < ROOMS.index(own_room)
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
    assert room_of(source.module) in {None, *ROOMS, *BESIDE}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("natsd/core/sample.pyx", "from natsd.accounts.account cimport Account\n"),
        ("natsd/core/sample.pxd", "cimport natsd.server.server\n"),
        ("natsd/core/sample.pyx", "def f():\n    from ..config import options\n"),
        ("natsd/accounts/sample.py", "from natsd import clients\n"),
        ("natsd/core/sample.pyx", "from natsd.bench import load\n"),
    ],
)
def test_a_breach_is_seen(path: str, text: str) -> None:
    assert len(breaches(source_of(text, path))) == 1


def test_what_is_allowed_is_allowed() -> None:
    text = "from natsd.core.sublist cimport SubList\nfrom natsd import __version__, version\n"
    assert breaches(source_of(text, "natsd/accounts/sample.pyx")) == []
