"""The digest of a configuration: `sha256:` and the hash of its tree as JSON, as nats-server has it.

`-t`, the log and `/varz` show it. The JSON is that of Go's `encoding/json`: sorted keys, `<`, `>`,
`&` and line separators escaped, floats without an exponent between 1e-6 and 1e21, and a newline at
the end.

Source: nats-server's `configDigest` (conf/parse.go).
"""

import re
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Final

_FLOAT_PLAIN_MIN: Final = 1e-6
_FLOAT_PLAIN_MAX: Final = 1e21
_MARK: Final = "\0"
_MARKED: Final = re.compile(r'"\\u0000([0-9.e+-]+)\\u0000"')
_ESCAPES: Final = {
    "&": "\\u0026",
    "<": "\\u003c",
    ">": "\\u003e",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}


def digest(tree: Mapping[str, object], *, has_floats: bool) -> str:
    """Return the digest of a parsed file."""
    from hashlib import sha256

    text = _json(_marked(tree) if has_floats else tree)
    return f"sha256:{sha256(text.encode(errors='replace')).hexdigest()}"


def _json(tree: object) -> str:
    import json

    text = json.dumps(
        tree,
        sort_keys=True,
        ensure_ascii=False,
        separators=(",", ":"),
        default=_moment,
    )
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return _MARKED.sub(r"\1", text) + "\n"


def _moment(value: object) -> str:
    assert isinstance(value, datetime)
    return f"{value:%Y-%m-%dT%H:%M:%SZ}".rjust(20, "0")


def _marked(value: object) -> object:
    """Return the tree with each float as a text between marks that its JSON does not keep."""
    if isinstance(value, float):
        return f"{_MARK}{_go_float(value)}{_MARK}"
    if isinstance(value, Mapping):
        return {name: _marked(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_marked(each) for each in value]
    return value


def _go_float(number: float) -> str:
    if number == 0 or _FLOAT_PLAIN_MIN <= abs(number) < _FLOAT_PLAIN_MAX:
        return format(Decimal(repr(number)).normalize(), "f")
    mantissa, _, exponent = repr(number).partition("e")
    if not exponent:  # Python has no exponent for 0.00001
        mantissa, _, exponent = f"{Decimal(repr(number)):e}".lower().partition("e")
    sign = "-" if exponent.startswith("-") else "+"
    return f"{mantissa.removesuffix('.0')}e{sign}{exponent.lstrip('+-').lstrip('0')}"
