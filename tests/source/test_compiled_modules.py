"""The files that one compiled module includes share their names: each name means one thing.

Cython does not say so: a second class, constant or import of a name silently replaces the first.
"""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.source.reading import ROOT, Source, source_of
from tests.source.test_packaging import INCLUDE, MODULES

IMPORTED = re.compile(r"^from (natsd[\w.]*) c?import (.*)")
DEFINED = re.compile(
    r"^(?:cdef |cpdef )?(?:inline )?(?:class|def|struct|enum) (\w+)"  # a class, a function …
    r"|^(?:cdef [\w ]+?[ *])?(\w+) = "  # a constant
    r"|^cdef (?:inline )?[\w\[\]:*, ]+?[ *](\w+)\("  # a C function
)
FORWARD = re.compile(r"^cdef class \w+(\(\w+\))?$")  # the class itself follows elsewhere
ENUM = re.compile(r"^c?p?def enum\b")
MEMBER = re.compile(r"^    (\w+)(?: =|$)")


def meanings(source: Source) -> dict[str, set[str]]:
    """Return the names at the top of a file, with where they come from."""
    found = defaultdict(set)
    own = str(source.path.with_suffix(""))
    in_enum = False
    for statement in source.statements:
        text = statement.text
        if match := IMPORTED.match(text):
            for part in match[2].strip("() ").split(","):
                name, _, alias = part.strip().partition(" as ")
                if name:
                    found[alias or name].add(f"{match[1]}.{name}")
        elif FORWARD.match(text):
            pass
        elif match := DEFINED.match(text):
            found[match[1] or match[2] or match[3]].add(own)
        elif in_enum and (match := MEMBER.match(text)):
            found[match[1]].add(own)
        in_enum = bool(ENUM.match(text)) or (in_enum and statement.indent > 0)
    return found


def files_of(module: Path) -> list[Path]:
    """Return the files of a module: its `.pyx` and `.pxd`, and what they include."""
    both = [path for path in (ROOT / module, (ROOT / module).with_suffix(".pxd")) if path.exists()]
    return [
        *both,
        *(path.parent / name for path in both for name in INCLUDE.findall(path.read_text())),
    ]


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_name_means_one_thing(module: Path) -> None:
    origins = defaultdict(set)
    for path in files_of(module):
        source = Source(path.relative_to(ROOT), path.read_text(encoding="utf-8"))
        for name, where in meanings(source).items():
            origins[name] |= where
    assert {name: where for name, where in origins.items() if len(where) > 1} == {}


def test_each_kind_of_name_is_seen() -> None:
    text = (
        "from natsd.core.routing cimport SubList, Message as Sent\n"
        "cdef enum:\n    LIMIT = 4\n    MOST\n"
        "cdef class Reader(Sink):\n    pass\n"
        "cdef inline int count(const char* text) noexcept:\n    pass\n"
        "cdef bytes PREFIX = b''\nTEXTS = ()\n"
    )
    seen = {"SubList", "Sent", "LIMIT", "MOST", "Reader", "count", "PREFIX", "TEXTS"}
    assert set(meanings(source_of(text))) == seen
