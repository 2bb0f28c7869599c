"""No module needs itself: neither by the imports that run, nor by those for types.

A compiled file belongs to the module that includes it. Imports inside of functions count too.
"""

import re
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.source.reading import Source, source_of, sources

INCLUDE = re.compile(r'^include "(?P<file>[^"]+)"', re.MULTILINE)

Needs = dict[str, dict[str, str]]
"""For each module those that it imports, each with the place of one import."""


def owners(files: Iterable[Source]) -> dict[Path, str]:
    """Return the module of each file."""
    found = {source.path: source for source in files}
    includer = {
        source.path.parent / name: source.path
        for source in found.values()
        for name in INCLUDE.findall(source.text)
    }

    def owner(path: Path) -> str:
        return owner(includer[path]) if path in includer else found[path].module

    return {path: owner(path) for path in found}


def needs_of(files: list[Source]) -> Needs:
    owner = owners(files)
    module_of = {source.module: owner[source.path] for source in files}
    needs: Needs = {module: {} for module in module_of.values()}
    for source in files:
        mine = owner[source.path]
        for imported in source.imports:
            name = imported.module
            while name and name not in module_of:
                name = name.rpartition(".")[0]
            if name and module_of[name] != mine:
                needs[mine].setdefault(module_of[name], f"{source.path}:{imported.line}")
    return needs


def cycle(files: list[Source]) -> list[str]:
    """Return the imports of one cycle, in their order; empty: there is none."""
    needs = needs_of(files)
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        modules = reversed(error.args[1])
        return [f"{needs[one][other]} imports {other}" for one, other in pairwise(modules)]
    return []


def test_no_module_needs_itself() -> None:
    assert cycle(sources("natsd")) == []


def test_a_compiled_file_belongs_to_the_module_that_includes_it() -> None:
    owner = owners(sources("natsd"))
    assert owner[Path("natsd/store/block/block.pyx")] == "natsd.store.block.blocks"
    assert owner[Path("natsd/store/block/block.pxd")] == "natsd.store.block.blocks"
    assert owner[Path("natsd/store/block/blocks.pyi")] == "natsd.store.block.blocks"


@pytest.mark.parametrize(
    "text",
    [
        "from natsd.core.low import Low\n",
        "from natsd.core import low\n",
        "if TYPE_CHECKING:\n    from natsd.core.low import Low\n",
        "def f():\n    from natsd.core.low import (\n        Low,\n    )\n",
    ],
)
def test_a_cycle_is_seen(text: str) -> None:
    files = [
        source_of("", "natsd/core/__init__.py"),
        source_of('include "part.pyx"\n', "natsd/core/low.pyx"),
        source_of("\nfrom natsd.core.high cimport High\n", "natsd/core/part.pyx"),
        source_of(text, "natsd/core/high.py"),
    ]
    found = cycle(files)
    assert len(found) == 2
    assert "natsd/core/part.pyx:2 imports natsd.core.high" in found
    assert cycle(files[:-1]) == []
