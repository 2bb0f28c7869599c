"""Configuration files: any text is a tree, or is refused with its place.

A tree that is written as JSON and parsed again is the same tree, and options are read from it or
refused. Input: the text of a file.
"""

import json
from datetime import datetime
from typing import Any

from natsd.config.language import Parser, digest
from natsd.config.load import options_of
from natsd.config.settings import OptionsError
from natsd.config.tree import ConfigMap

MODULES = ["natsd.config.language", "natsd.config.sections"]
ENVIRONMENT = {"N": "1", "L": "[a, {b: $N}]", "C": "$C"}
SEEDS = [
    b"",
    b"port: 4222 # c\nhost = a; debug on",
    b'{"a": 1, "b": [1, "x", {"c": true}], "d": {"e": -1.5}}',
    b"authorization { users = [ {user: a, password: $2a$11$x} ] }",
    b"a 1kb, b: 2GiB; c: 10s\nd: 127.0.0.1:4222 e",
    b"v: [1, 2]\nw: $v x: $L y: $C",
    b"a (\n text\n)\nb: 'raw' c: \"\\t\\x41\\xc3\\xa9\"",
    b"include 'other.conf'\nm { include other.conf; b: 2026-01-02T15:04:05Z }",
    b"accounts { A { exports: [{service: q, response: stream}], mappings: {a: b} } }",
    b"jetstream { max_mem: 1G }\ntls { handshake_first: auto }\nresolver: URL(http://a/)",
    b"[[[[{{{{",
    b"a:\xff\xfe\x00b/ /c",
]


def check(data: bytes) -> None:
    text = data.decode(errors="replace")
    try:
        tree = parse(text)
    except OptionsError as error:
        check_error(error, text)
        return
    assert digest(tree).startswith("sha256:")
    if is_json(tree):
        assert parse(json.dumps(tree, ensure_ascii=False)) == tree
    try:
        options_of(tree)
    except OptionsError as error:
        for each in error.every:
            assert "\n" not in str(each)


def check_error(error: OptionsError, text: str) -> None:
    assert error.position is not None
    if error.position.file == "fuzz":
        assert 1 <= error.position.line <= text.count("\n") + 1
    assert error.position.column >= 1
    assert "\n" not in str(error)


def parse(text: str) -> ConfigMap:
    return Parser(text, "fuzz", included, ENVIRONMENT).parse()


def included(name: str) -> ConfigMap:
    if name != "other.conf":
        raise ValueError("no such file")
    return Parser("other: 1", name, included, ENVIRONMENT).parse()


def is_json(tree: Any) -> bool:
    """Return whether the tree is within the JSON that is a configuration: keys have no escapes."""
    if isinstance(tree, dict):
        return bool(tree) and all(
            json.dumps(name, ensure_ascii=False) == f'"{name}"' and is_json(value)
            for name, value in tree.items()
        )
    if isinstance(tree, list):
        return all(map(is_json, tree))
    if isinstance(tree, str):
        return all(letter >= " " or letter in "\n\t\r" for letter in tree)
    return not isinstance(tree, float | datetime)
