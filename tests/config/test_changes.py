"""Changes of settings: every setting says what applies it, and the changes lead from old to new."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.config import Options, make_options
from natsd.config.authorization import AuthorizationOptions
from natsd.config.changes import APPLIED_BY, Component, diff_options, with_changes
from natsd.config.jetstream_options import JetStreamOptions
from tests.config.keys import JWT, public_key

SECTIONS = {"authorization": AuthorizationOptions, "jetstream": JetStreamOptions}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "max_payload": st.integers(1, 1 << 20),
    "max_pending": st.integers(1 << 20, 1 << 26),
    "max_pending_total": st.sampled_from([0, 1 << 27, "1G"]),
    "max_sub_tokens": st.integers(0, 255),
    "port": st.integers(-1, 65535),
    "http_port": st.integers(-1, 65535),
    "lame_duck_duration": st.integers(60, 600),
    "lame_duck_grace_period": st.integers(1, 59),
    "server_name": st.sampled_from(["", "a", "b"]),
    "store_dir": st.sampled_from([None, "/x", "/y"]),
    "accounts": st.sampled_from([{}, {"$G": {"msg_trace": "t"}}, {"$G": {"jetstream": False}}]),
    "mappings": st.sampled_from([{}, {"a": "b"}, {"a.*": [{"dest": "b.$1", "weight": "50%"}]}]),
    "proxies": st.sampled_from([{}, {"trusted": [{"key": public_key("N")}]}]),
    "operators": st.sampled_from([[], JWT]),
    "trusted_keys": st.sampled_from([[], [public_key("O")]]),
    "resolver": st.sampled_from(["MEM", "URL(http://a/)", {"type": "full", "dir": "/x"}]),
    "resolver_tls": st.sampled_from([{}, {"insecure": True}]),
    "resolver_preload": st.sampled_from([{}, {public_key("A"): JWT}]),
    "resolver_pinned_accounts": st.sampled_from([[], public_key("A")]),
    "default_js_domain": st.just({}),  # its accounts must exist
    "default_sentinel": st.just(""),  # needs operators
    "tls": st.sampled_from([{"cert_file": "/c", "key_file": "/k"}, {"handshake_first": "auto"}]),
    "server_tags": st.sampled_from([[], "a", ["a", "b"]]),
    "server_metadata": st.sampled_from([{}, {"a": "b"}]),
    "feature_flags": st.sampled_from([{}, {"js_ack_fc_v2": False}]),
    "cluster": st.sampled_from([{}, {"name": "a"}]),
    "gateway": st.sampled_from([{}, {"host": "a"}]),
    "leafnodes": st.sampled_from([{}, {"host": "a"}]),
    "websocket": st.sampled_from([{}, {"no_tls": True}]),
    "mqtt": st.sampled_from([{}, {"ack_wait": "1m"}]),
    "ocsp": st.just(False),
    "ocsp_cache": st.sampled_from([False, {"type": "none", "local_store": "x"}]),
    "remote_syslog": st.sampled_from(["", "udp://a", "unix:///dev/log"]),
    "https_port": st.just(0),  # needs tls
    "http_user": st.just(""),  # needs a password
    "http_password": st.just(""),
    "write_timeout": st.sampled_from(["default", "close", "retry"]),
    "no_auth_user": st.just(""),
    "authorization": st.sampled_from(
        [{}, {"token": "a"}, {"token": "b", "timeout": 3}, {"user": "a", "password": "b"}]
    ),
    "jetstream": st.fixed_dictionaries(
        {},
        optional={
            "enabled": st.booleans(),
            "max_file_store": st.integers(-1, 1 << 40),
            "max_memory_store": st.integers(-1, 1 << 40),
            "domain": st.sampled_from(["", "hub"]),
            "key": st.sampled_from(["", "k"]),
            "limits": st.sampled_from([{}, {"max_ack_pending": 3}, {"batch": {"timeout": 5}}]),
            "sync_interval": st.sampled_from(["always", "2m"]),
        },
    ),
}


def strategy(name: str, default: object) -> st.SearchStrategy[Any]:
    if name in VALUES:
        return VALUES[name]
    if isinstance(default, bool):
        return st.booleans()
    if isinstance(default, int):
        return st.integers(1, 1000)
    if isinstance(default, timedelta):
        return st.integers(1, 1000)
    if isinstance(default, str):
        return st.sampled_from(["", "a", "b"])
    return st.sampled_from([None, "/tmp/one", "/tmp/two"])


ALL_OPTIONS = st.fixed_dictionaries(
    {},
    optional={each.name: strategy(each.name, each.default) for each in fields(Options)},
).map(lambda given: make_options(**given))


def test_every_setting_is_named_once() -> None:
    plain = [each.name for each in fields(Options) if each.name not in SECTIONS]
    nested = [f"{name}.{each.name}" for name in SECTIONS for each in fields(SECTIONS[name])]
    assert sorted(APPLIED_BY) == sorted(plain + nested)


def test_every_component_applies_something() -> None:
    assert {each for row in APPLIED_BY.values() for each in row.components} == set(Component)


@given(ALL_OPTIONS, ALL_OPTIONS)
@settings(deadline=None)
def test_the_changes_lead_from_the_old_options_to_the_new(old: Options, new: Options) -> None:
    changes = diff_options(old, new)
    assert with_changes(old, changes) == new
    assert all(change.old != change.new for change in changes)
    assert len({change.name for change in changes}) == len(changes)
    assert diff_options(new, new) == []


@pytest.mark.parametrize(
    ("old", "new", "can_apply"),
    [
        ({"max_control_line": 100}, {"max_control_line": 64 << 10}, True),
        ({"max_control_line": 100}, {"max_control_line": (64 << 10) + 1}, False),
        ({"max_control_line": 100_000}, {"max_control_line": 90_000}, True),
        ({"jetstream.max_file_store": 10}, {"jetstream.max_file_store": 20}, True),
        ({"jetstream.max_file_store": 20}, {"jetstream.max_file_store": 10}, False),
        ({}, {"jetstream.max_file_store": 10}, False),
        ({"jetstream.max_file_store": 10}, {}, False),
        ({"jetstream.max_memory_store": 10}, {"jetstream.max_memory_store": 20}, True),
    ],
)
def test_whether_a_value_can_be_applied_depends_on_both(
    old: dict[str, Any], new: dict[str, Any], can_apply: bool
) -> None:
    with_jetstream = make_options(jetstream=True)
    (change,) = diff_options(
        make_options(with_jetstream, **old), make_options(with_jetstream, **new)
    )
    assert change.needs_restart is not can_apply


def test_settings_of_jetstream_change_while_it_is_off() -> None:
    is_off, is_on = make_options(), {"jetstream.enabled": True, "jetstream.max_file_store": 10}
    assert not any(change.needs_restart for change in diff_options(is_off, make_options(**is_on)))
    changed = make_options(is_off, **{"jetstream.domain": "hub", "store_dir": "/x"})
    assert not any(change.needs_restart for change in diff_options(is_off, changed))


BLOCKS: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({}, {"cluster": {"name": "a"}}, True),
    ({"cluster": {"name": "a"}}, {}, True),
    ({"cluster": {"name": "a"}}, {"cluster": {"name": "b", "no_advertise": True}}, True),
    ({}, {"cluster": {"host": "a"}}, False),
    ({}, {"gateway": {}}, True),
    ({}, {"gateway": {"advertise": "a:1"}}, False),
    ({}, {"leafnodes": {"compression": "off"}}, True),
    ({}, {"leafnodes": {"advertise": "a:1"}}, False),
    ({}, {"mqtt": {"ack_wait": "3s", "max_ack_pending": 5}}, True),
    ({}, {"mqtt": {"ack_wait": "3s", "js_domain": "x"}}, False),
    ({}, {"websocket": {"same_origin": True}}, False),
    ({}, {"ocsp": False}, True),
    ({"system_account": "$SYS"}, {}, True),
    ({}, {"system_account": "$SYS"}, False),
    ({}, {"connect_error_reports": 5, "reconnect_error_reports": 6, "prof_block_rate": 7}, True),
    ({}, {"write_timeout": "close"}, False),
    ({}, {"feature_flags": {"a": True}}, False),
    ({"resolver": "MEM"}, {"resolver": "URL(http://a/)"}, True),
    ({}, {"resolver": "MEM"}, False),
    ({}, {"jetstream": {"meta_compact": 5, "meta_compact_size": 6, "meta_compact_sync": 1}}, True),
    ({}, {"jetstream": {"max_concurrent_io": 5}}, False),
]


@pytest.mark.parametrize(("old", "new", "can_apply"), BLOCKS)
def test_what_nats_server_applies_or_accepts_needs_no_restart(
    old: dict[str, Any], new: dict[str, Any], can_apply: bool
) -> None:
    base: dict[str, Any] = {"jetstream": True}
    changes = diff_options(make_options(**base | old), make_options(**base | new))
    assert any(change.needs_restart for change in changes) is not can_apply


@pytest.mark.parametrize(
    ("settings", "lines"),
    [
        ({"debug": True, "trace": True}, ["debug = true", "trace = true"]),
        ({"write_deadline": "90s"}, ["write_deadline = 1m30s"]),
        ({"authorization": {"timeout": 1.5}}, ["authorization timeout = 1.5"]),
        ({"token": "s3cr3t"}, ["authorization token"]),
        (
            {"authorization": {"users": [{"user": "a", "password": "s3cr3t"}]}},
            ["authorization users"],
        ),
        ({"user": "a", "password": "b"}, ["authorization username", "authorization password"]),
        ({"no_fast_producer_stall": True}, ["fast producers will not be stalled"]),
        ({"server_tags": "a", "server_metadata": {"a": "b"}}, ["tags", "metadata"]),
        ({"tls": {"cert_file": "c", "key_file": "k"}}, ["tls = enabled"]),
        ({"pid_file": Path("/x")}, ["pid_file = /x"]),
        ({"ocsp": False, "cluster": {"name": "a"}}, ["cluster", "OCSP"]),
        ({"jetstream.enabled": True}, ["JetStream"]),
        ({"jetstream.max_file_store": 3 << 20}, ["JetStream max_file_store = 3.00 MB"]),
    ],
)
def test_a_change_is_logged_in_the_words_of_nats_server(
    settings: dict[str, Any], lines: list[str]
) -> None:
    changes = diff_options(make_options(), make_options(**settings))
    assert [change.new_text for change in changes] == lines


def test_a_change_shows_its_values_but_no_secret() -> None:
    old = make_options(password="one", write_deadline="1m")
    new = make_options(password="two", write_deadline="90s", log_file=Path("/x"))
    assert [str(change) for change in diff_options(old, new)] == [
        "log_file: old=, new=/x",
        "write_deadline: old=1m0s, new=1m30s",
        "authorization.password: old=[REDACTED], new=[REDACTED]",
    ]
