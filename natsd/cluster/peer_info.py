"""INFO and CONNECT between servers: their fields, in nats-server's order.

- Fields match in any case, unknown fields are ignored, and `null` stands for the default, as in Go.
- A server passes on the INFO of another one: the fields that it knows survive that.

Source: nats-server's `Info` (server/server.go) and `connectInfo` (server/route.go).
"""

from typing import Any, Final, TypeVar

import msgspec

PROTOCOL_OF_SERVERS: Final = 3
"""Version of the protocol between servers: with accounts, and traces of messages."""

NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class BadFieldsError(Exception):
    """INFO or CONNECT is not a JSON object, or a field has the wrong type."""


class SubjectList(msgspec.Struct, frozen=True, omit_defaults=True):
    """Subjects that may pass a route in one direction; no `allow`: all."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


class PeerInfo(msgspec.Struct, kw_only=True):
    """What a server says of itself on a route, or of another server."""

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    proto: int = 0
    go: str = ""
    host: str = ""
    port: int = 0
    headers: bool = False
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    tls_available: bool = False
    max_payload: int = 0
    jetstream: bool = False
    ip: str = ""
    """URL under which the server is reached; empty: its address is that of the connection."""
    client_id: int = 0
    """Only in the INFO for clients."""
    nonce: str = ""
    cluster: str = ""
    cluster_dynamic: bool = False
    domain: str = ""
    connect_urls: tuple[str, ...] = ()
    ws_connect_urls: tuple[str, ...] = ()
    ldm: bool = False
    compression: str = ""
    imports: SubjectList | None = msgspec.field(name="import", default=None)
    exports: SubjectList | None = msgspec.field(name="export", default=None)
    lnoc: bool = False
    lnocu: bool = False
    info_on_connect: bool = False
    route_pool_size: int = 0
    route_pool_idx: int = 0
    route_account: str = ""
    route_acc_add_reqid: str = ""
    gossip_mode: int = 0
    gateway: str = ""
    gateway_url: str = ""
    leafnode_urls: tuple[str, ...] = ()
    natsd: str = ""
    """Version of natsd; empty: another server."""

    def line(self) -> bytes:
        """Return the INFO line."""
        return b"INFO %b \r\n" % _encoded(self, _ALWAYS_IN_INFO)


class PeerConnect(msgspec.Struct, kw_only=True):
    """What a server says when it connects to another one."""

    echo: bool = False
    verbose: bool = False
    pedantic: bool = False
    user: str = ""
    password: str = msgspec.field(name="pass", default="")
    tls_required: bool = False
    headers: bool = False
    name: str = ""
    cluster: str = ""
    cluster_dynamic: bool = False
    lnoc: bool = False
    lnocu: bool = False
    gateway: str = ""
    lang: str = ""
    """Only clients have it."""

    def line(self) -> bytes:
        """Return the CONNECT line."""
        return b"CONNECT %b\r\n" % _encoded(self, _ALWAYS_IN_CONNECT)


_ALWAYS_IN_INFO: Final = frozenset(
    {
        "server_id",
        "server_name",
        "version",
        "proto",
        "go",
        "host",
        "port",
        "headers",
        "max_payload",
    }
)
_ALWAYS_IN_CONNECT: Final = frozenset(
    {"echo", "verbose", "pedantic", "tls_required", "headers", "name", "cluster"}
)


def decode_info(json: bytes) -> PeerInfo:
    """Return the fields of an INFO. Raises BadFieldsError."""
    return _decoded(json, PeerInfo)


def decode_connect(json: bytes) -> PeerConnect:
    """Return the fields of a CONNECT. Raises BadFieldsError."""
    return _decoded(json, PeerConnect)


_Fields = TypeVar("_Fields", PeerInfo, PeerConnect)


def _decoded(json: bytes, kind: type[_Fields]) -> _Fields:
    try:
        given = _decode_object(json.decode(errors="replace"))
        settings = {name.lower(): value for name, value in given.items() if value is not None}
        return msgspec.convert(settings, kind)
    except NOT_JSON as error:
        raise BadFieldsError(str(error)) from None


def _encoded(fields: PeerInfo | PeerConnect, always: frozenset[str]) -> bytes:
    """Return the fields as JSON, without those that have no value."""
    told = {
        name: value
        for name, value in msgspec.to_builtins(fields).items()
        if name in always or value not in ("", 0, None, [], ())
    }
    return msgspec.json.encode(told)
