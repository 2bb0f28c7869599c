"""Errors about broken JSON have Go's texts and offsets, as nats-server answers."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.jetstream.models.json_syntax import syntax_error

BROKEN = [
    (b"hello", "invalid character 'h' looking for beginning of value at offset 1"),
    (b"{", "unexpected EOF"),
    (b'{"name":"S"', "unexpected EOF"),
    (b'{"a":tru', "unexpected EOF"),
    (
        b'{"name":"S",}',
        "invalid character '}' looking for beginning of object key string at offset 13",
    ),
    (b'{"name" "S"}', "invalid character '\"' after object key at offset 9"),
    (b'{"name":"S"} x', "invalid character 'x' looking for beginning of value at offset 14"),
    (b'{"name":"S\x01"}', "invalid character '\\x01' in string literal at offset 11"),
    (b'{"a":nul}', "invalid character '}' in literal null (expecting 'l') at offset 9"),
    (b'{"name":"S\\q"}', "invalid character 'q' in string escape code at offset 12"),
    (b'{"a":01}', "invalid character '1' after object key:value pair at offset 7"),
    (b"{1:2}", "invalid character '1' looking for beginning of object key string at offset 2"),
    (b"[1 2]", "invalid character '2' after array element at offset 4"),
    (b"[1,]", "invalid character ']' looking for beginning of value at offset 4"),
    (b'"\\u12x4"', "invalid character 'x' in \\u hexadecimal character escape at offset 6"),
    (b"[-]", "invalid character ']' in numeric literal at offset 3"),
    (b"[1.]", "invalid character ']' after decimal point in numeric literal at offset 4"),
    (b"[1e+]", "invalid character ']' in exponent of numeric literal at offset 5"),
    (b"\xc3\xa9", "invalid character '\u00c3' looking for beginning of value at offset 1"),
    (b"[\x80]", "invalid character '\\u0080' looking for beginning of value at offset 2"),
    (b"['']", "invalid character '\\'' looking for beginning of value at offset 2"),
]


@pytest.mark.parametrize(("body", "text"), BROKEN)
def test_where_it_breaks(body: bytes, text: str) -> None:
    assert syntax_error(body) == text


def test_depth_is_bounded() -> None:
    assert syntax_error(b"[" * 10_000) == "unexpected EOF"
    text = "invalid character '[' exceeded max depth at offset 10001"
    assert syntax_error(b"[" * 100_000) == text


@given(st.text(alphabet='{}[]",:\\ \n01.eE+-truefalsn\x01u', max_size=40))
def test_agrees_with_the_reader_on_where_json_ends(text: str) -> None:
    """If Python can read a text, no syntax error is found before its end."""

    def no_constant(name: str) -> None:
        raise ValueError(name)

    try:
        json.loads(text, parse_constant=no_constant)
    except ValueError:
        assert syntax_error(text.encode())
    else:
        assert syntax_error(text.encode()) == "unexpected EOF"
