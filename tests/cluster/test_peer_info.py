"""INFO and CONNECT between servers, as nats-server 2.14.5 sends them."""

import json

import pytest

from natsd.cluster.peer_info import (
    BadFieldsError,
    PeerConnect,
    PeerInfo,
    SubjectList,
    decode_connect,
    decode_info,
)

INFO = (
    b'{"server_id":"NB73","server_name":"A","version":"2.14.5","proto":3,"go":"go1.26.8",'
    b'"host":"127.0.0.1","port":16222,"headers":true,"max_payload":1048576,'
    b'"nonce":"0BMIrzC-6aXbrlA","cluster":"C",'
    b'"connect_urls":["192.0.2.2:14222","[fd00::2]:14222"],"compression":"accept",'
    b'"lnoc":true,"lnocu":true,"route_pool_size":3}'
)
CONNECT = (
    b'{"echo":true,"verbose":false,"pedantic":false,"tls_required":false,"headers":true,'
    b'"name":"NASE","cluster":"C","lnoc":true}'
)


def test_the_info_of_nats_server_survives() -> None:
    info = decode_info(INFO)
    assert (info.server_id, info.port, info.route_pool_size) == ("NB73", 16222, 3)
    assert info.line() == b"INFO " + INFO + b" \r\n"


def test_the_connect_of_nats_server_survives() -> None:
    connect = decode_connect(CONNECT)
    assert connect.name == "NASE"
    assert connect.line() == b"CONNECT " + CONNECT + b"\r\n"


def test_credentials_stand_where_nats_server_has_them() -> None:
    line = PeerConnect(user="u", password="p", name="N").line()
    assert list(json.loads(line[8:]))[3:5] == ["user", "pass"]


def test_permissions_are_lists() -> None:
    info = decode_info(b'{"import":{"allow":["a"],"deny":["b"]},"export":{"deny":["c"]}}')
    assert info.imports == SubjectList(("a",), ("b",))
    assert info.exports == SubjectList(None, ("c",))
    told = json.loads(info.line()[5:])
    assert told["import"] == {"allow": ["a"], "deny": ["b"]}
    assert told["export"] == {"deny": ["c"]}


def test_names_match_in_any_case_and_null_is_no_value() -> None:
    info = decode_info(b'{"Server_ID":"N","connect_urls":null,"unknown":[1]}')
    assert info == PeerInfo(server_id="N")


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"port":"x"}', b"[" * 100_000])
def test_what_is_no_info_is_refused(text: bytes) -> None:
    with pytest.raises(BadFieldsError):
        decode_info(text)
