"""Every setting that a reload can change is changed both ways under traffic: a table of values."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from natsd import Server
from natsd.config import make_options
from natsd.config.changes import APPLIED_BY
from natsd.testing.certificates import Authority
from tests.config.keys import public_key
from tests.server.test_reload import traffic

BASE: Final = {"host": "127.0.0.1", "port": -1}
USERS: Final = [{"user": "a", "password": "b"}]
LIMITED: Final = {"subscribe": {"deny": "x"}}

BOTH_WAYS: Final[dict[str, tuple[Any, Any]]] = {
    "client_advertise": ("", "there:4222"),
    "jetstream.scrub_interval": ("24h", "off"),
    "jetstream.scrub_speed": ("1M", 1000),
    "debug": (False, True),
    "trace": (False, True),
    "trace_verbose": (False, True),
    "logtime": (True, False),
    "logtime_utc": (False, True),
    "log_file": (None, "{tmp}/log"),
    "log_size_limit": (0, 1 << 20),
    "logfile_max_num": (0, 3),
    "syslog": (False, True),
    "remote_syslog": ("", "udp://127.0.0.1:514"),
    "max_traced_msg_len": (0, 10),
    "pid_file": (None, "{tmp}/pid"),
    "ports_file_dir": (None, "{tmp}"),
    "max_control_line": (4096, 1024),
    "max_payload": (1 << 20, 1000),
    "max_pending": (64 << 20, 2 << 20),
    "max_pending_total": (0, 128 << 20),
    "max_connections": (65_536, 10),
    "max_subscriptions": (0, 10),
    "max_sub_tokens": (0, 8),
    "max_closed_clients": (10_000, 10),
    "ping_interval": ("2m", "1m"),
    "ping_max": (2, 3),
    "lame_duck_duration": ("2m", "1m"),
    "lame_duck_grace_period": ("10s", "5s"),
    "mappings": ({}, {"elsewhere": "there"}),
    "accounts": ({}, {"A": {"limits": {"max_connections": 3}, "mappings": {"a": "b"}}}),
    "proxies": (None, {"trusted": [{"key": public_key("N")}]}),
    "tls": (None, {"cert_file": "{cert_file}", "key_file": "{key_file}"}),
    "allow_non_tls": (False, True),
    "proxy_protocol": (False, True),
    "server_tags": ([], ["a", "b"]),
    "server_metadata": ({}, {"a": "b"}),
    "jetstream.enabled": (False, True),
    "no_fast_producer_stall": (False, True),
    "trace_headers": (False, True),
    "cluster": (None, {"name": "a", "no_advertise": True}),
    "write_deadline": ("10s", "5s"),
}
"""Settings with two values that leave clients without credentials connected."""

NO_EFFECT: Final[dict[str, tuple[Any, Any]]] = {
    "gateway": (None, {}),
    "leafnodes": (None, {"compression": "off"}),
    "websocket": (None, {}),
    "mqtt": (None, {"ack_wait": "3s", "max_ack_pending": 5}),
    "ocsp": (None, False),
    "prof_block_rate": (0, 5),
    "connect_error_reports": (3600, 5),
    "reconnect_error_reports": (1, 5),
    "jetstream.meta_compact": (0, 5),
    "jetstream.meta_compact_size": (0, 5),
    "jetstream.meta_compact_sync": (False, True),
    "resolver_tls": (None, {"insecure": True}),
    "system_account": ("$SYS", ""),
}
"""Settings that nats-server lets change, without effect here; `system_account` changes one way."""

OPERATOR_MODE: Final = (
    "resolver",
    "resolver_preload",
    "resolver_pinned_accounts",
    "default_sentinel",
)
"""Settings of operator mode (tests/server/test_operator_mode.py)."""

MONITORING: Final = ("http_user", "http_password")
"""Settings of monitoring that need each other (tests/monitor/test_access.py)."""

LOGINS: Final[dict[str, tuple[Any, Any]]] = {
    "authorization.timeout": ({}, {"timeout": "3s"}),
    "authorization.default_permissions": (
        {"users": USERS},
        {"users": USERS, "default_permissions": LIMITED},
    ),
    "authorization.user": ({}, {"user": "a", "password": "b"}),
    "authorization.password": ({}, {"user": "a", "password": "b"}),
    "authorization.token": ({}, {"token": "t"}),
    "authorization.users": ({}, {"users": USERS}),
    "authorization.auth_callout": (
        {"users": USERS},
        {"users": USERS, "auth_callout": {"issuer": public_key("A"), "auth_users": ["a"]}},
    ),
    "authorization.proxy_required": ({"users": USERS}, {"users": USERS, "proxy_required": True}),
    "no_auth_user": ({"users": USERS}, {"users": USERS}),
}
"""Settings of logins, as whole `authorization` sections: some close clients, as is right."""


LARGER: Final = ("jetstream.max_memory_store", "jetstream.max_file_store")
"""Sizes that may only grow (tests/server/test_reload.py)."""


def filled(value: Any, files: dict[str, str]) -> Any:
    """Return a value of the table with this test's files in place of `{tmp}` and others."""
    if isinstance(value, dict):
        return {key: filled(each, files) for key, each in value.items()}
    is_place = isinstance(value, str) and value.startswith("{")
    return value.format_map(files) if is_place else value


def files_of(name: str, directory: Path) -> dict[str, str]:
    """Return the files that stand for `{tmp}` and the others."""
    files = {"tmp": str(directory)}
    if name == "tls":
        files |= Authority(directory).sign("localhost").settings
    return files


def test_the_table_has_every_setting_that_can_be_reloaded() -> None:
    reloadable = {name for name, row in APPLIED_BY.items() if row.components}
    assert {*BOTH_WAYS, *LOGINS, *LARGER, *NO_EFFECT, *OPERATOR_MODE, *MONITORING} == reloadable


@pytest.mark.parametrize("name", NO_EFFECT)
async def test_a_setting_without_effect_changes_under_traffic(name: str) -> None:
    first, second = NO_EFFECT[name]
    before, after = (make_options(**BASE, **{name: each}) for each in (first, second))
    async with Server(before) as server, traffic(server):
        for options in (after,) if name == "system_account" else (after, before, after):
            server.reload(options)
            assert server.options == options


@pytest.mark.parametrize("name", BOTH_WAYS)
async def test_a_setting_changes_and_back_under_traffic(name: str, tmp_path: Path) -> None:
    files = files_of(name, tmp_path)
    first, second = (filled(value, files) for value in BOTH_WAYS[name])
    store = {"store_dir": tmp_path / "store"} if name == "jetstream.enabled" else {}
    before, after = (make_options(**BASE, **store, **{name: each}) for each in (first, second))
    async with Server(before) as server, traffic(server):
        for options in (after, before, after, before):
            changes = server.reload(options)
            assert (name in [change.name for change in changes]) is (first != second)
            assert server.options == options


@pytest.mark.parametrize("name", LOGINS)
async def test_a_login_changes_and_back(name: str) -> None:
    first, second = LOGINS[name]
    extra = {"no_auth_user": "a"} if name == "no_auth_user" else {}
    async with Server(make_options(**BASE, authorization=first)) as server:
        before = server.options
        for _ in range(2):
            changes = server.reload(make_options(**BASE, authorization=second, **extra))
            assert name in [change.name for change in changes]
            server.reload(before)
        assert server.options == before
