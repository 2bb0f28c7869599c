"""Bodies of pull requests (ADR-13), with the error texts of nats-server 2.14."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.jetstream.consumer.requests import is_usual, parse_request
from natsd.jetstream.models.json_syntax import json_error

NOTHING = {
    "batch": 0,
    "max_bytes": 0,
    "expires": 0,
    "idle_heartbeat": 0,
    "no_wait": False,
    "id": b"",
    "group": b"",
    "min_pending": 0,
    "min_ack_pending": 0,
    "priority": 0,
}


@pytest.mark.parametrize(
    ("body", "batch"),
    [
        (b"", 1),
        (b"  \r\n", 1),
        (b"5", 5),
        (b" 500 ", 500),
        (b"0", 0),
        (b"-5", -5),
        (b"+5", 5),
        (b"abc", 1),
        (b"5x", 1),
        (b"1_000", 1),
        (b"-", 1),
        (b"9" * 25, 1),
        (b"[1]", 1),
        (b"\xef\xbb\xbf{}", 1),
    ],
)
def test_no_object(body: bytes, batch: int) -> None:
    assert parse_request(body) == NOTHING | {"batch": batch}


@pytest.mark.parametrize(
    ("body", "values"),
    [
        (b"{}", {}),
        (b'{"batch":5,"expires":1000000000}', {"batch": 5, "expires": 1_000_000_000}),
        (b' { "batch" : 5 , "no_wait" : true } ', {"batch": 5, "no_wait": True}),
        (b'{"no_wait":false,"max_bytes":1024}', {"max_bytes": 1024}),
        (b'{"batch":1,"batch":2}', {"batch": 2}),
        (b'{"BATCH":3}', {"batch": 3}),
        (b'{"batch":null,"no_wait":null}', {}),
        (b'{"batch":4,"unknown":{"batch":9},"more":[1,2.5e3,"\\u00e4"]}', {"batch": 4}),
        (b'{"\\u0062atch":2}', {"batch": 2}),
        (b'{"a":"\xff","batch":2}', {"batch": 2}),
        (b'{"batch":-0}', {}),
        (b'{"id":"x"}', {"id": b"x"}),
        (b'{"id":"","group":"g"}', {"group": b"g"}),
        (
            b'{"min_pending":1,"min_ack_pending":2,"priority":3}',
            {
                "min_pending": 1,
                "min_ack_pending": 2,
                "priority": 3,
            },
        ),
        (b'{"expires":10,"idle_heartbeat":5}', {"expires": 10, "idle_heartbeat": 5}),
        (b'{"batch":9223372036854775807}', {"batch": 2**63 - 1}),
    ],
)
def test_objects(body: bytes, values: dict[str, int]) -> None:
    assert parse_request(body) == NOTHING | values


NO_FIELD = (
    "json: cannot unmarshal {} into Go struct field JSApiConsumerGetNextRequest.{} of type {}"
)


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        (b"{", "unexpected end of JSON input"),
        (b'{"a":"', "unexpected end of JSON input"),
        (b'{"batch":1,}', "invalid character '}' looking for beginning of object key string"),
        (b'{"batch":1}x', "invalid character 'x' after top-level value"),
        (b"{batch:1}", "invalid character 'b' looking for beginning of object key string"),
        (b'{"a":NaN}', "invalid character 'N' looking for beginning of value"),
        (b'{"a":"\x01"}', "invalid character '\\x01' in string literal"),
        (b'{"a":01}', "invalid character '1' after object key:value pair"),
        (b'{"a":tru}', "invalid character '}' in literal true (expecting 'e')"),
        (b'{"a":nul}', "invalid character '}' in literal null (expecting 'l')"),
        (b'{"a":"\\x"}', "invalid character 'x' in string escape code"),
        (b'{"a":{"b":[1,2}}', "invalid character '}' after array element"),
        (b'{"batch":1 "x"}', "invalid character '\"' after object key:value pair"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":-}', "invalid character '}' in numeric literal"),
        (b'{"a":1.}', "invalid character '}' after decimal point in numeric literal"),
        (b'{"a":1e}', "invalid character '}' in exponent of numeric literal"),
        (b'{"a":\xff}', "invalid character 'ÿ' looking for beginning of value"),
        (b'{"a":truex}', "invalid character 'x' after object key:value pair"),
        (b'{"a":[}', "invalid character '}' looking for beginning of value"),
        (b'{"a":' + b"[" * 20_000, "invalid character '[' exceeded max depth"),
        (b'{"a":"' + b"x" * 70_000 + b'"}', "request is too large"),
        (b'{"batch":"x"}', NO_FIELD.format("string", "batch", "int")),
        (b'{"batch":1.0}', NO_FIELD.format("number 1.0", "batch", "int")),
        (b'{"batch":1e2}', NO_FIELD.format("number 1e2", "batch", "int")),
        (b'{"batch":99999999999999999999}', NO_FIELD.format(
            "number 99999999999999999999", "batch", "int"
        )),
        (b'{"batch":true}', NO_FIELD.format("bool", "batch", "int")),
        (b'{"batch":[]}', NO_FIELD.format("array", "batch", "int")),
        (b'{"expires":"1s"}', NO_FIELD.format("string", "expires", "time.Duration")),
        (b'{"no_wait":1}', NO_FIELD.format("number", "no_wait", "bool")),
        (b'{"no_wait":"true"}', NO_FIELD.format("string", "no_wait", "bool")),
        (b'{"id":5}', NO_FIELD.format("number", "PriorityGroup.id", "string")),
        (b'{"group":{}}', NO_FIELD.format("object", "PriorityGroup.group", "string")),
        (b'{"min_ack_pending":1.5}', NO_FIELD.format(
            "number 1.5", "PriorityGroup.min_ack_pending", "int64"
        )),
        (b'{"idle_heartbeat":1}', "heartbeat value too large"),
        (b'{"idle_heartbeat":600000000,"expires":1000000000}', "heartbeat value too large"),
    ],
)  # fmt: skip
def test_what_is_wrong(body: bytes, wrong: str) -> None:
    assert parse_request(body) == wrong


numbers = st.integers(1 - 10**18, 10**18 - 1)
requests = st.fixed_dictionaries(
    {},
    optional={
        "batch": numbers,
        "max_bytes": numbers,
        "expires": numbers,
        "no_wait": st.booleans(),
        "min_pending": numbers,
        "priority": numbers,
        "group": st.text("abc", max_size=3),
        "id": st.text("abc", max_size=3),
    },
)


@given(requests, st.sampled_from([None, 1, "\t"]))
def test_usual_or_not_is_read_alike(request_values: dict[str, Any], indent: int | None) -> None:
    """A request with an unknown key takes the slow path and reads the same."""
    usual = json.dumps(request_values, indent=indent).encode()
    unusual = json.dumps(request_values | {"x": None}, indent=indent).encode()
    assert is_usual(usual)
    assert not is_usual(unusual)
    assert parse_request(usual) == parse_request(unusual)


@given(st.binary(max_size=60) | st.text('{}[],:"\\ue0123-.tfn ', max_size=40).map(str.encode))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    parsed = parse_request(body)
    assert isinstance(parsed, dict | str)
    try:
        json.loads(body.decode(errors="replace"), parse_constant=lambda name: 1 / 0)
        is_json = True
    except (ValueError, ZeroDivisionError, RecursionError):
        is_json = False
    assert (json_error(body) is None) == is_json
