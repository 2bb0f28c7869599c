"""A reader of Python and Cython source for the tests of the source.

Both languages share their strings, comments and indentation, so one reader serves `.py`, `.pyi`,
`.pyx` and `.pxd`. It works on `code`: the text with comments and the inside of strings blanked out,
every line in its place.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = (".py", ".pyi", ".pyx", ".pxd")

STRING_OR_COMMENT = re.compile(
    r'"""(?:\\.|[^\\])*?"""'
    r"|'''(?:\\.|[^\\])*?'''"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n])*'"
    r"|#[^\n]*",
    re.DOTALL,
)
IMPORT = re.compile(r"^\s*c?import\s+(?P<modules>[\w., ]+)")
FROM_IMPORT = re.compile(r"^\s*from\s+(?P<module>\.*[\w.]*)\s+c?import\s+\(?(?P<names>[^)#]*)")
FUNCTION = re.compile(r"^\s*(?:async\s+def|def|cdef(?!\s+(?:class|extern))|cpdef)\b(?P<rest>.*)")


@dataclass(frozen=True)
class Import:
    line: int
    module: (
        str  # absolute; for `from a import b` this is a.b, whether b is a module or a name in it
    )


@dataclass(frozen=True)
class Statement:
    first: int
    last: int
    text: str  # on one line, without strings and comments

    @property
    def indent(self) -> int:
        return len(self.text) - len(self.text.lstrip())


@dataclass(frozen=True)
class Function:
    line: int
    name: str
    line_count: int


@dataclass(frozen=True)
class Source:
    """One file: its module name, its lines, its code without strings and comments."""

    path: Path  # from the root of the repository
    text: str

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def code(self) -> list[str]:
        return STRING_OR_COMMENT.sub(blanked, self.text).splitlines()

    @cached_property
    def comments(self) -> list[tuple[int, str]]:
        return [
            (self.text.count("\n", 0, match.start()) + 1, match.group())
            for match in STRING_OR_COMMENT.finditer(self.text)
            if match.group().startswith("#")
        ]

    @property
    def module(self) -> str:
        parts = self.path.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def package(self) -> str:
        return ".".join(self.path.parts[:-1])

    @cached_property
    def statements(self) -> list[Statement]:
        """Return logical lines: brackets, backslashes and long strings continue a line."""
        found: list[Statement] = []
        pending, first, depth = "", 0, 0
        for number, line in enumerate(self.code, 1):
            first = first if pending else number
            pending += line.removesuffix("\\") + " "
            depth += sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))
            if depth <= 0 and not line.endswith("\\"):
                found.append(Statement(first, number, pending.rstrip()))
                pending, depth = "", 0
        return [statement for statement in found if statement.text]

    @cached_property
    def imports(self) -> list[Import]:
        return [
            Import(statement.first, module)
            for statement in self.statements
            for module in imported_modules(statement.text, self.package)
        ]

    @cached_property
    def functions(self) -> list[Function]:
        return [
            Function(statement.first, name, self.block_length(index))
            for index, statement in enumerate(self.statements)
            if (name := function_name(statement.text)) is not None
        ]

    def block_length(self, header: int) -> int:
        """Return the number of lines from that statement to the last deeper-indented one."""
        opening = last = self.statements[header]
        for statement in self.statements[header + 1 :]:
            if statement.indent <= opening.indent:
                break
            last = statement
        return last.last - opening.first + 1


def blanked(match: re.Match[str]) -> str:
    """Return a string's quotes and newlines without its text; nothing for a comment."""
    text = match.group()
    if text.startswith("#"):
        return ""
    quote = 3 if text.startswith(('"""', "'''")) else 1
    inside = re.sub(r"[^\n]", " ", text[quote:-quote]).replace("\n", "\\\n")
    return text[:quote] + inside + text[-quote:]


def imported_modules(statement: str, package: str) -> Iterator[str]:
    if match := FROM_IMPORT.match(statement):
        origin = absolute(match["module"], package)
        for name in match["names"].split(","):
            if imported := name.split(" as ")[0].strip():
                yield f"{origin}.{imported}"
    elif match := IMPORT.match(statement):
        for name in match["modules"].split(","):
            yield name.split(" as ")[0].strip()


def absolute(module: str, package: str) -> str:
    """Return `.x` or `..x` in a file of `package` as an absolute name."""
    name = module.lstrip(".")
    level = len(module) - len(name)
    if level == 0:
        return name
    parents = package.split(".")[: len(package.split(".")) - (level - 1)]
    return ".".join([*parents, name] if name else parents)


def function_name(statement: str) -> str | None:
    """Return the function's name if the statement opens a function's body, else None."""
    match = FUNCTION.match(statement)
    if match is None or not statement.endswith(":"):
        return None
    name = re.search(r"(\w+)\s*\(", match["rest"])
    return name[1] if name else None


def source_of(text: str, path: str = "natsd/core/sample.pyx") -> Source:
    """Return a made-up file, for the tests of this reader."""
    return Source(Path(path), text)


def sources(*directories: str, suffixes: tuple[str, ...] = SUFFIXES) -> list[Source]:
    """Return every source file below these directories."""
    return [
        Source(path.relative_to(ROOT), path.read_text(encoding="utf-8"))
        for directory in directories
        for path in sorted((ROOT / directory).rglob("*"))
        if path.suffix in suffixes
    ]
