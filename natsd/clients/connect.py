"""What a client says of itself in CONNECT.

Source: nats-server 2.14 reference 3.3. As there, field names match in any case, unknown fields are
ignored, `null` changes nothing, and a repeated CONNECT changes only the fields it names.
"""

import contextlib
from typing import Any, Final

import msgspec

PROTOCOLS: Final = (0, 1)


class BadConnectError(Exception):
    """The JSON of a CONNECT is none, or a field has the wrong type."""


class ConnectOptions(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of CONNECT that a client may set, with the values of those it leaves out."""

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    protocol: int = 0
    name: str = ""
    lang: str = ""
    version: str = ""
    user: str = ""
    password: str = msgspec.field(name="pass", default="")
    auth_token: str = ""
    account: str = ""
    new_account: bool = False
    tls_required: bool = False
    nkey: str = ""
    jwt: str = ""
    sig: str = ""


FIELDS: Final = frozenset(ConnectOptions.__struct_encode_fields__)
NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decode_known = msgspec.json.Decoder(ConnectOptions).decode
_decode_any = msgspec.json.Decoder(dict[str, Any] | None).decode


def decode_connect(json: bytes, before: ConnectOptions | None = None) -> ConnectOptions:
    """Options from the JSON of a CONNECT, on top of those before; raises BadConnectError."""
    if before is None:
        with contextlib.suppress(*NOT_JSON):  # another case, a null, or really bad
            return _decode_known(json)
    try:
        settings = msgspec.to_builtins(before) if before is not None else {}
        # As in Go, bytes that are no UTF-8 are replaced, and nesting has a limit.
        fields = _decode_any(json.decode(errors="replace")) or {}
        for name, value in fields.items():
            if value is not None and name.lower() in FIELDS:
                settings[name.lower()] = value
        return msgspec.convert(settings, ConnectOptions)
    except NOT_JSON as error:
        raise BadConnectError(str(error)) from None
