"""The files and functions of docs/architecture.md exist, and each walk follows the calls."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
ROW = re.compile(r"^\| \d+(\*?) \| .* \| `(natsd/\S+)` `([\w.]+)` \|$")


@dataclass(frozen=True)
class Step:
    """A row of a walk; `is_called` tells that the function of the row before it calls it."""

    is_called: bool
    path: str
    name: str


def walks() -> dict[str, list[Step]]:
    found: dict[str, list[Step]] = {}
    for section in PAGE.split("\n### ")[1:]:
        title, *lines = section.split("\n## ")[0].splitlines()
        rows = [line for line in lines if re.match(r"\| \d", line)]
        matches = [ROW.match(row) for row in rows]
        assert all(matches), f"{title}: a row is not `file` `function`"
        found[title] = [Step(not m[1], m[2], m[3]) for m in matches if m]
    return found


@cache
def bodies(path: str, name: str) -> tuple[str, ...]:
    """Return the bodies of all functions with that name, `Class.method` or `function`."""
    lines = (ROOT / path).read_text().splitlines()
    *owner, function = name.split(".")
    inside, found = not owner, []
    for at, line in enumerate(lines):
        if owner and re.match(r"\S", line):
            inside = bool(re.match(rf"(cdef )?class {owner[0]}\b", line)) or (
                inside and not re.match(r"(cdef|cpdef|class|def|async def|@)\b", line)
            )
        begins = re.match(rf"(\s*)(async def|cdef|cpdef|def)\b.*\b{function}\(", line)
        if inside and begins:
            found.append("\n".join(indented(lines, at, len(begins[1]))))
    return tuple(found)


def indented(lines: list[str], at: int, indent: int) -> list[str]:
    end = at + 1
    while end < len(lines) and (
        not lines[end].strip()
        or lines[end].startswith(" " * (indent + 1))
        or lines[end].strip().startswith(")")
    ):
        end += 1
    return lines[at:end]


@pytest.mark.parametrize("title", walks())
def test_each_step_is_there_and_calls_the_next(title: str) -> None:
    steps = walks()[title]
    assert len(steps) > 10
    for before, step in zip([None, *steps], steps, strict=False):
        assert bodies(step.path, step.name), f"{step.path} has no {step.name}"
        if step.is_called and before is not None:
            called = step.name.split(".")[-1]
            assert any(
                re.search(rf"\b{called}\b", body.split("\n", 1)[1])
                for body in bodies(before.path, before.name)
            ), f"{before.name} does not call {step.name}"


def test_each_file_that_the_page_names_is_there() -> None:
    for path in re.findall(r"`((?:natsd|tests|docs)/[\w/.]*)`", PAGE):
        assert (ROOT / path).exists(), path
