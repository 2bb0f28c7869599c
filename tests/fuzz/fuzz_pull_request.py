"""Pull requests: any body is read as nats-server reads it, or refused with a status.

A JSON object is read alike in place and by the slow path, which an unknown key selects.
"""

import json

from natsd.jetstream.consumer.requests import is_usual, parse_request
from natsd.jetstream.models.json_syntax import json_error

MODULES = [
    "natsd.jetstream.models.json_syntax",
    "natsd.jetstream.consumer.requests",
]
SEEDS = [
    b"",
    b"500",
    b"-7",
    b'{"batch":500,"expires":30000000000,"no_wait":true}',
    b'{"batch":1,"max_bytes":1024,"idle_heartbeat":500000000,"expires":5000000000}',
    b'{ "group": "g", "id": "x", "min_pending": 1, "min_ack_pending": 2, "priority": 9 }',
    b'{"batch":1.5}',
    b'{"batch":-1e+9}',
    b'{"batch":"1"}',
    b'{"BATCH":1,"batch":null,"other":[{"batch":2},"\\u00e4\\n",true,false,null,-0.5E-3]}',
    b'{"batch":99999999999999999999}',
    b'{"a":"\xff","b":"\\ud800"}',
    b'{"batch":1,}',
    b"[[[[[[[[{",
]
NUMBER_DIGITS_MAX = 4000  # Python reads no longer numbers


def check(data: bytes) -> None:
    parsed = parse_request(data)
    if isinstance(parsed, str):
        assert 0 < len(parsed) < 1000
        assert "\r" not in parsed and "\n" not in parsed
        assert data.strip().startswith(b"{")
    if len(data) < NUMBER_DIGITS_MAX:
        assert (json_error(data) is None) == is_json(data)
    if is_usual(data):
        unusual = data.rstrip()[:-1].rstrip()
        separator = b"" if unusual.endswith(b"{") else b","
        assert parse_request(unusual + separator + b'"x":null}') == parsed


def is_json(data: bytes) -> bool:
    """Return whether the bytes are JSON by RFC 8259, with any bytes in strings."""

    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        json.loads(data.decode(errors="replace"), parse_constant=refuse)
    except (ValueError, RecursionError):
        return False
    return True
