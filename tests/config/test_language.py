"""The configuration language (reference §2.1): trees in any style, and errors with their place."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.config.files import parse_file
from natsd.config.language import Key, Parser
from natsd.config.settings import OptionsError
from natsd.config.tree import ConfigMap

NO_ENVIRONMENT: dict[str, str] = {}


def included(name: str) -> ConfigMap:
    raise AssertionError(name)


def parse(text: str, environment: Mapping[str, str] = NO_ENVIRONMENT) -> ConfigMap:
    return Parser(text, "x.conf", included, environment).parse()


READ: dict[str, dict[str, Any]] = {
    "": {},
    "# comment\n// comment": {},
    "a = 1\nb: 2\nc 3": {"a": 1, "b": 2, "c": 3},
    "a: 1; b: 2, c: 3": {"a": 1, "b": 2, "c": 3},
    "a\n 1": {"a": 1},
    "m { n { o: 1 } }": {"m": {"n": {"o": 1}}},
    "m: { 'n o': 1, \"p\" 2 }": {"m": {"n o": 1, "p": 2}},
    '{"a": 1, "b": [1, "x"], "c": {"d": true}}': {"a": 1, "b": [1, "x"], "c": {"d": True}},
    "{ a: 1 }": {"a": 1},
    "a: [1, 2\n 3 # three\n]": {"a": [1, 2, 3]},
    "a: [ {b: 1}\n {b: 2} ]": {"a": [{"b": 1}, {"b": 2}]},
    "a: yes\nb: OFF\nc: 'yes'": {"a": True, "b": False, "c": "yes"},
    "a: 1k, b: 1Kb, c: 2MiB, d: 1g, e: 1tb": {
        "a": 1000,
        "b": 1024,
        "c": 2 << 20,
        "d": 10**9,
        "e": 1 << 40,
    },
    "a: 1m": {"a": 1_000_000},
    "a: 10s, b: 1h30m, c: 5x": {"a": "10s", "b": "1h30m", "c": "5x"},
    "a: -5, b: -5.5, c: 0.25": {"a": -5, "b": -5.5, "c": 0.25},
    "a: 127.0.0.1, b: 127.0.0.1:4222, c: localhost:4222": {
        "a": "127.0.0.1",
        "b": "127.0.0.1:4222",
        "c": "localhost:4222",
    },
    "a: 2026-01-02T15:04:05Z": {"a": datetime(2026, 1, 2, 15, 4, 5, tzinfo=UTC)},
    r'a: "\t\n\r\"\\\x41\xc3\xa9"': {"a": '\t\n\r"\\Aé'},
    r"a: x\ty": {"a": "x\ty"},
    r"a: 'x\ty'": {"a": r"x\ty"},
    "a (\n one\n two\n)\nb: 1": {"a": "\n one\n two\n", "b": 1},
    "a: x#y\nb: http://z": {"a": "x#y", "b": "http://z"},
    "a: 1\na: 2": {"a": 2},
    "a: 1\nb: $a": {"a": 1, "b": 1},
    "a: 1\nm { a: 2, b: $a, n { c: $a } }": {"a": 1, "m": {"a": 2, "b": 2, "n": {"c": 2}}},
    "a: $2a$11$abc/def.": {"a": "$2a$11$abc/def."},
    "a 1 / ": {"a": 1},
    "a: 1 }": {"a": 1},
    "a:": {"a": ""},
}

MISTAKES = {
    "a: 1\nb": "x.conf:2:1: config is invalid: the key 'b' has no value",
    "a: {\n b: 1": "x.conf:1:4: this { is not closed by }",
    "a: [1, 2": "x.conf:1:4: this [ is not closed by ]",
    "a: 'b": "x.conf:1:4: this quote is not closed",
    'a: "b': "x.conf:1:4: this quote is not closed",
    "a: (\nb )": "x.conf:1:4: this ( is not closed by a line that is only )",
    "a:\n1": "x.conf:1:3: expected a value, but got a new line",
    "m { a: }": "x.conf:1:8: expected a value, but got '}'",
    "= 1": "x.conf:1:1: unexpected key separator '=': a key is missing",
    "a: b c": "x.conf:1:6: expected a new line, a comma or a comment after the value, but got 'c'",
    "a: [b c]": "x.conf:1:7: expected a comma, a new line or ] after the item, but got 'c'",
    r'a: "\q"': "x.conf:1:5: invalid escape character 'q'",
    r'a: "\x4g"': "x.conf:1:5: expected two hexadecimal digits after \\x, but got '4g'",
    "a: .5": "x.conf:1:4: floats must start with a digit; quote a text",
    "a: 1.": "x.conf:1:6: expected a digit after the dot (quote a text), but the file ends",
    "a: 2026-01-02": "x.conf:1:4: expected a date such as 2026-01-02T15:04:05Z",
    "a: 9223372036854775808": "x.conf:1:4: this integer is out of the range of 64 bits",
    "a: 5kbi": "x.conf:1:5: no such suffix: 'kbi'",
    "value: 1\nb: $valu": "x.conf:2:4: variable reference for 'valu' can not be found; did you",
    "password: $ecret": "x.conf:1:11: variable reference can not be found (quote a text that",
    "a: $a": "x.conf:1:4: variable reference for 'a' can not be found; it is neither a key",
    "a: " + "[" * 300: "x.conf:1:204: more than 200 maps and lists in one another",
}


@pytest.mark.parametrize("text", READ)
def test_a_text_is_a_tree(text: str) -> None:
    assert parse(text) == READ[text]


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_has_a_place(text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        parse(text)
    assert f"{caught.value.position}: {caught.value}".startswith(MISTAKES[text])


def test_variables_of_the_environment_are_parsed_as_values() -> None:
    environment = {"N": "4222", "L": "[a, b]", "M": "{a: 1}", "T": "text", "R": "$T"}
    text = "n: $N\nl: $L\nm: $M\nt: $T\nr: $R"
    assert parse(text, environment) == {
        "n": 4222,
        "l": ["a", "b"],
        "m": {"a": 1},
        "t": "text",
        "r": "text",
    }


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"A": "$B", "B": "$A"}, "variable reference cycle for 'A'"),
        ({"A": "x y"}, "could not be parsed"),
    ],
)
def test_a_bad_variable_of_the_environment(environment: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionsError, match=reason) as caught:
        parse("a: $A", environment)
    assert str(caught.value.position) == "x.conf:1:4"


def test_a_key_knows_its_place_and_whether_it_is_a_variable() -> None:
    first, second = parse("# comment\n  a: 1\nb: $a")
    assert isinstance(first, Key)
    assert isinstance(second, Key)
    assert str(first.position) == "x.conf:2:3"
    assert (first.is_variable, second.is_variable) == (True, False)


def test_what_is_probably_a_mistake_is_a_warning() -> None:
    parser = Parser("a: 1\na: 2\n}", "x.conf", included, NO_ENVIRONMENT)
    parser.parse()
    assert [f"{place}: {text}" for place, text in parser.warnings] == [
        "x.conf:2:1: 'a' is given before; only this value counts",
        "x.conf:3:1: } without {",
    ]


BARE = st.from_regex(r"[a-z][a-z0-9_.>*-]{0,8}", fullmatch=True).filter(
    lambda text: text not in ("true", "false", "yes", "no", "on", "off", "include")
)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
TREES = st.recursive(
    st.booleans() | NUMBERS | BARE | TEXT,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(BARE | TEXT, below, max_size=4),
    max_leaves=12,
)
FILES = st.dictionaries(BARE | TEXT.filter(lambda name: name != "}"), TREES, max_size=4)
ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


class Style:
    """Writes trees, in one of the many ways that mean the same."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def one_of(self, *texts: str) -> str:
        return self._data.draw(st.sampled_from(texts))

    def text(self, text: str) -> str:
        styles = ['"' + "".join(ESCAPES.get(letter, letter) for letter in text) + '"']
        if "'" not in text:
            styles.append(f"'{text}'")
        if text.isidentifier() and text.isascii() and text not in BOOLEANS:
            styles.append(text)
        return self.one_of(*styles)

    def key(self, name: str) -> str:
        quotes = [quote for quote in "\"'" if quote not in name]
        if not quotes:
            return ""
        quote = self.one_of(*quotes)
        return quote + name + quote + self.one_of(" ", ": ", " = ", ":")

    def value(self, value: Any) -> str:
        if isinstance(value, bool):
            return self.one_of(*(("true", "YES", "on") if value else ("false", "No", "off")))
        if isinstance(value, int):
            return str(value)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            between = self.one_of(", ", "\n", " # c\n", " ,\n ")
            return "[" + between.join(map(self.value, value)) + self.one_of("", " ", "\n") + "]"
        return "{" + self.one_of("", " ", "\n") + self.entries(value) + self.one_of(" ", "\n") + "}"

    def entries(self, tree: dict[str, Any]) -> str:
        between = self.one_of("\n", ", ", "; ", " // c\n", "\n\n")
        return between.join(self.key(name) + self.value(value) for name, value in tree.items())


BOOLEANS = ("true", "false", "yes", "no", "on", "off")


def has_both_quotes(tree: Any) -> bool:
    """Return whether a key cannot be written: in a quoted key there are no escapes."""
    if isinstance(tree, dict):
        return any("'" in name and '"' in name for name in tree) or any(
            has_both_quotes(each) for each in tree.values()
        )
    return isinstance(tree, list) and any(map(has_both_quotes, tree))


@given(FILES, st.data())
@settings(deadline=None)
def test_a_tree_in_any_style_is_the_same_tree(tree: dict[str, Any], data: st.DataObject) -> None:
    if has_both_quotes(tree):
        return
    style = Style(data)
    text = style.entries(tree)
    if tree and style.one_of("plain", "braces") == "braces":
        text = "{" + text + "\n}"
    assert parse(text) == tree


def without_escapes(tree: Any) -> bool:
    """Return whether the keys of the tree need no escape in JSON."""
    if isinstance(tree, dict):
        return all(json.dumps(name, ensure_ascii=False) == f'"{name}"' for name in tree) and all(
            map(without_escapes, tree.values())
        )
    return not isinstance(tree, list) or all(map(without_escapes, tree))


JSON_TEXT = TEXT.filter(
    lambda text: not any(ord(letter) < 32 and letter not in "\n\t\r" for letter in text)
)
JSON_TREES = st.recursive(
    st.booleans() | NUMBERS | JSON_TEXT,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(JSON_TEXT, below, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(JSON_TEXT, JSON_TREES, min_size=1, max_size=4), st.sampled_from([None, 2]))
@settings(deadline=None)
def test_json_is_a_configuration(tree: dict[str, Any], indent: int | None) -> None:
    if without_escapes(tree):
        assert parse(json.dumps(tree, indent=indent, ensure_ascii=False)) == tree


def write(directory: Path, **files: str) -> Path:
    for name, text in files.items():
        path = directory / f"{name}.conf"
        path.write_text(text, encoding="utf-8")
    return directory / "main.conf"


def test_an_include_is_relative_to_its_file_and_may_stand_in_a_map(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    write(tmp_path / "below", one="a: 1\ninclude two.conf", two="b: 2")
    main = write(tmp_path, main="include 'below/one.conf'\nm { include below/two.conf; c: $b }")
    parsed = parse_file(main, NO_ENVIRONMENT)
    assert parsed.tree == {"a": 1, "b": 2, "m": {"b": 2, "c": 2}}
    assert [path.name for path in parsed.files] == ["main.conf", "one.conf", "two.conf", "two.conf"]


@pytest.mark.parametrize(
    ("files", "place", "reason"),
    [
        (
            {"main": "\n include non.conf", "none": ""},
            "main.conf:2:10",
            "did you mean 'none.conf'?",
        ),
        ({"main": "include main.conf"}, "main.conf:1:9", "include cycle"),
        (
            {"main": "include a.conf", "a": "m { include main.conf }"},
            "a.conf:1:13",
            "include cycle",
        ),
        ({"main": "include a.conf", "a": "b: ["}, "a.conf:1:4", "this [ is not closed"),
    ],
)
def test_a_bad_include(tmp_path: Path, files: dict[str, str], place: str, reason: str) -> None:
    main = write(tmp_path, **files)
    with pytest.raises(OptionsError) as caught:
        parse_file(main, NO_ENVIRONMENT)
    assert str(caught.value.position) == str(tmp_path / place)
    assert reason in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match=r"none\.conf: no such file or directory"):
        parse_file(tmp_path / "none.conf")


DIGESTS = {
    "": "ca3d163bab055381",
    "a: b": "5a43a8255d70758e",
    "a: 1\nc: [1 , x, {d: true}]\n": "20f5fe08d1012f3d",
    'a: "<&>\\x41é"': "b5c59fe063e3e9e9",
    "a: 2026-01-02T15:04:05Z": "ba23ed0124bbe661",
    "a: [0.5, 1.5 , 100.0, 0.0000001, 123456789012345678901234.5, 0.000001, 3.0 ]": (
        "bd3470abf0eee835"
    ),
    "a: 1k\nA: 2\nb: $a": "90c62c64b36f6d72",
    'a: "\u2028\\t\\x07"': "011a271f928c14a9",
    'server_tags: ["\u2029\u2030\\x08\\x0c\\x7f\\"\\\\"]\nauthorization: {}': "8953b25040bb62c4",
}
"""Beginnings of the digests that nats-server 2.14.5 makes of these files."""


@pytest.mark.parametrize("text", DIGESTS)
def test_the_digest_is_that_of_nats_server(text: str, tmp_path: Path) -> None:
    digest = parse_file(write(tmp_path, main=text)).digest
    assert digest.startswith(f"sha256:{DIGESTS[text]}")
