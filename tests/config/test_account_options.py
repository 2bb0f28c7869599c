"""Settings of accounts (reference 2.4)."""

from dataclasses import fields
from typing import Any

import pytest

from natsd.config import OptionsError, make_options
from natsd.config.account_jetstream import ALIASES, AccountJetStream, StorageLimits

READ = [
    ({"max_mem": "10M"}, "max_memory", 10 << 20),
    ({"memory": 5}, "max_memory", 5),
    ({"disk": "1K"}, "max_store", 1024),
    ({"Max_File": 7}, "max_store", 7),
    ({"streams": 3}, "max_streams", 3),
    ({"consumers": 4}, "max_consumers", 4),
    ({"max_bytes": True}, "max_bytes_required", True),
    ({"store_max_stream_bytes": 9}, "disk_max_stream_bytes", 9),
    ({"mem_max_stream_bytes": 9}, "memory_max_stream_bytes", 9),
    ({"max_ack_pending": 11}, "max_ack_pending", 11),
    ({"cluster_traffic": "owner"}, "cluster_traffic", "owner"),
]
MISTAKES = [
    (5, "accounts: must be a mapping of accounts"),
    ({"$G": 5}, "accounts: $G: Expected map entries for accounts"),
    ({"A": {"usrs": []}}, """accounts: A: unknown field "usrs"; did you mean 'users'?"""),
    ({"$G": {"jetstream": "maybe"}}, "accounts: $G: jetstream: must be enabled, disabled, or a"),
    (
        {"$G": {"jetstream": {"max_memm": 1}}},
        """accounts: $G: jetstream: unknown field "max_memm"; did you mean 'max_memory'?""",
    ),
    (
        {"$G": {"jetstream": {"mem": 1, "max_mem": 2}}},
        "accounts: $G: jetstream: max_memory is given twice",
    ),
    (
        {"$G": {"jetstream": {"tiers": {"R9": {}}}}},
        "accounts: $G: jetstream: tiers: there is no tier 'R9'",
    ),
    ({"$G": {"jetstream": {"tiers": 3}}}, "accounts: $G: jetstream: tiers: must be a mapping"),
    (
        {"$G": {"jetstream": {"max_mem": 1, "tiers": {"R1": {}}}}},
        "accounts: $G: jetstream: limits are those of tiers, or of everything together",
    ),
    ({"$G": {"msg_trace": 5}}, "accounts: $G: msg_trace: must be a mapping of settings"),
    ({"$G": {"msg_trace": "a.*"}}, "accounts: $G: msg_trace: Trace destination 'a.*' is not valid"),
    (
        {"$G": {"trace_dest": {"dest": "a", "sampling": 101}}},
        "accounts: $G: msg_trace: sampling must be 1 to 100, not 101",
    ),
    (
        {"$G": {"msg_trace": {"dest": "a", "sampling": "0%"}}},
        "accounts: $G: msg_trace: sampling must be 1 to 100, not '0'",
    ),
    ({"$G": {"msg_trace": {"to": "a"}}}, '''accounts: $G: msg_trace: unknown field "to"'''),
]


def jetstream_of(given: object) -> AccountJetStream:
    return make_options(accounts={"$G": {"jetstream": given}}).accounts["$G"].jetstream


def test_nothing_is_limited_unless_it_is_said() -> None:
    assert not make_options().accounts
    assert jetstream_of(True) == jetstream_of({}) == AccountJetStream()
    assert AccountJetStream().max_store == -1


@pytest.mark.parametrize("given", [False, "disabled", "Disable"])
def test_an_account_without_streams(given: object) -> None:
    assert jetstream_of(given).enabled is False


@pytest.mark.parametrize(("given", "name", "value"), READ)
def test_what_a_mapping_says(given: dict[str, Any], name: str, value: object) -> None:
    assert getattr(jetstream_of(given), name) == value


def test_limits_of_tiers() -> None:
    tiers = jetstream_of({"tiers": {"R1": {"max_file": "1K"}, "R3": {"streams": 2}}}).tiers
    assert dict(tiers) == {"R1": StorageLimits(max_store=1024), "R3": StorageLimits(max_streams=2)}
    assert "max_store=1024" in repr(tiers)


@pytest.mark.parametrize(("given", "beginning"), MISTAKES)
def test_a_mistake_is_one_line(given: object, beginning: str) -> None:
    with pytest.raises(OptionsError) as caught:
        make_options(accounts=given)
    assert str(caught.value).startswith(beginning)
    assert "\n" not in str(caught.value)


def test_every_setting_says_what_it_means() -> None:
    settings = fields(AccountJetStream)
    assert all(setting.metadata["kind"].description for setting in settings)
    assert set(ALIASES.values()) <= {setting.name for setting in settings}


def test_options_with_accounts_are_hashable_and_can_be_built_upon() -> None:
    options = make_options(accounts={"$G": {"jetstream": {"streams": 3}}})
    assert hash(options) == hash(make_options(options, accounts=options.accounts))
    assert make_options(options, port=5).accounts == options.accounts


@pytest.mark.parametrize(
    ("given", "dest", "sampling"),
    [
        ("a.b", "a.b", 100),
        ({"dest": "a.b"}, "a.b", 100),
        ({"Dest": "a.b", "Sampling": 25}, "a.b", 25),
        ({"dest": "a.b", "sampling": "25%"}, "a.b", 25),
        ({"dest": "a.b", "sampling": "25"}, "a.b", 25),
        ({}, "", 100),
    ],
)
@pytest.mark.parametrize("name", ["msg_trace", "trace_dest"])
def test_where_messages_are_traced(name: str, given: object, dest: str, sampling: int) -> None:
    read = make_options(accounts={"$G": {name: given}}).accounts["$G"].msg_trace
    assert (read.dest, read.sampling) == (dest, sampling)
