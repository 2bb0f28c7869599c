"""House rules that no linter checks: lengths, banned calls, reasons and open ends."""

import re
from collections.abc import Callable

import pytest

from tests.source.reading import Source, source_of, sources

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 800

# Only these talk to a person; all others log, and get clocks and randomness as arguments.
RIM = ("natsd/cli/", "natsd/bench/", "natsd/top/", ".ci/")
BANNED = {
    "print(": re.compile(r"(?<![\w.])print\("),
    "time.time(": re.compile(r"(?<!\w)time\.time\("),
    "random.": re.compile(r"(?<![\w.])random\.\w|^\s*(?:import\s+random|from\s+random)\b"),
}
BARE_EXCEPT = re.compile(r"^\s*except\s*:")

# Checks that a line switches off: "noqa: E501 - why", "type: ignore[misc]  # why".
SWITCH = re.compile(
    r"#\s*(?:noqa|type:\s*ignore|no-cython-lint|mypy:|ruff:|cython-lint:|pragma:)[^#]*"
)
SWITCH_ALONE = re.compile(
    r"#\s*(?:noqa(?::\s*[A-Z]+\d+(?:\s*,\s*[A-Z]+\d+)*)?|type:\s*ignore(?:\[[\w\-, ]+\])?"
    r"|no-cython-lint|(?:mypy|ruff|cython-lint|pragma):\s*[\w\-=, ]*)\s*"
)
FILE_DIRECTIVE = re.compile(
    r"#\s*cython:.*\b(?:boundscheck|wraparound|initializedcheck|nonecheck|cdivision|overflowcheck)\b"
)
OPEN_END = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")


def long_functions(source: Source) -> list[str]:
    return [
        f"{source.path}:{function.line} {function.name} has {function.line_count} lines"
        for function in source.functions
        if function.line_count > FUNCTION_LINES_MAX
    ]


def long_file(source: Source) -> list[str]:
    too_long = len(source.lines) > FILE_LINES_MAX
    return [f"{source.path} has {len(source.lines)} lines"] if too_long else []


def banned_calls(source: Source) -> list[str]:
    if str(source.path).startswith((*RIM, "tests/")):
        return []
    return [
        f"{source.path}:{number} {call}"
        for number, line in enumerate(source.code, 1)
        for call, pattern in BANNED.items()
        if pattern.search(line)
    ]


def bare_excepts(source: Source) -> list[str]:
    return [
        f"{source.path}:{number} bare except"
        for number, line in enumerate(source.code, 1)
        if BARE_EXCEPT.match(line)
    ]


def unexplained_switches(source: Source) -> list[str]:
    """Return lines that switch off a rule without a reason (behind a dash or a second `#`)."""
    return [
        f"{source.path}:{number} gives no reason: {text.strip()}"
        for number, text in source.comments
        for switch in [SWITCH.match(text)]
        if switch and SWITCH_ALONE.fullmatch(switch.group()) and switch.end() == len(text)
    ]


def directives_for_a_whole_file(source: Source) -> list[str]:
    """Return directives over a whole file; one of them once turned `t[-1]` into a crash."""
    return [
        f"{source.path}:{number} {text}"
        for number, text in source.comments
        if FILE_DIRECTIVE.match(text)
    ]


def open_ends(source: Source) -> list[str]:
    return [
        f"{source.path}:{number} {text}"
        for number, text in source.comments
        if OPEN_END.search(text)
    ]


Rule = Callable[[Source], list[str]]
BAD_SAMPLES: list[tuple[Rule, str]] = [
    (long_functions, "cdef int f(int x) except -1:\n" + "    x += 1\n" * 70),
    (long_functions, "async def f() -> None:\n" + "    pass\n" * 70),
    (long_file, "x = 1\n" * 801),
    (banned_calls, "print('x')\n"),
    (banned_calls, "now = time.time()\n"),
    (banned_calls, "x = random.choice(y)\n"),
    (banned_calls, "from random import choice\n"),
    (bare_excepts, "try:\n    pass\nexcept:\n    pass\n"),
    (unexplained_switches, "import x  # noqa\n"),
    (unexplained_switches, "import x  # noqa: E501, F401\n"),
    (unexplained_switches, "x = y  # type: ignore[misc]\n"),
    (unexplained_switches, "x = y  # no-cython-lint\n"),
    (unexplained_switches, "# ruff: noqa\n"),
    (directives_for_a_whole_file, "# cython: language_level=3, boundscheck=False\n"),
    (open_ends, "x = 1  # TO" + "DO later\n"),
]
GOOD_SAMPLES: list[tuple[Rule, str]] = [
    (long_functions, "cdef int f(int x) except -1:\n" + "    x += 1\n" * 69 + "y = 1\n" * 9),
    (
        banned_calls,
        "fingerprint(x); self.print(x); seeded_random.choice(y); 'print(x)'  # print(x)\n",
    ),
    (bare_excepts, "try:\n    pass\nexcept OSError:\n    pass\n"),
    (unexplained_switches, "import x  # noqa: F401 - registers the codec\n"),
    (unexplained_switches, "x = y  # type: ignore[misc]  # the stubs lack it\n"),
    (unexplained_switches, "x = y  # no-cython-lint: the macro wants it\n"),
    (directives_for_a_whole_file, "# cython: language_level=3\n@cython.boundscheck(False)\n"),
    (open_ends, "todo = 'TO" + "DO'\n"),
]
RULES = list(dict.fromkeys(rule for rule, _ in BAD_SAMPLES))
EVERYTHING = sources("natsd", "tests", ".ci")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("source", EVERYTHING, ids=lambda source: str(source.path))
def test_source_keeps_the_rule(rule: Rule, source: Source) -> None:
    assert rule(source) == []


@pytest.mark.parametrize(("rule", "text"), BAD_SAMPLES)
def test_rule_can_fail(rule: Rule, text: str) -> None:
    assert len(rule(source_of(text))) == 1


@pytest.mark.parametrize(("rule", "text"), GOOD_SAMPLES)
def test_rule_lets_good_code_pass(rule: Rule, text: str) -> None:
    assert rule(source_of(text)) == []
