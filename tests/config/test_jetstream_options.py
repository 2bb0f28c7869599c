"""JetStream's settings: defaults, names and spellings of the reference (section 2.8)."""

import os
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from natsd.config import Options, OptionsError, make_options
from natsd.config.jetstream_options import (
    ALIASES,
    SYNC_ALWAYS,
    JetStreamLimits,
    JetStreamOptions,
)
from natsd.config.resources import (
    default_store_dir,
    disk_bytes,
    held_bytes,
    memory_bytes,
    resolved,
    three_quarters,
)

DEFAULTS = {
    "enabled": False,
    "store_dir": None,
    "max_memory_store": -1,
    "max_file_store": -1,
    "domain": "",
    "strict": True,
    "sync_interval": SYNC_ALWAYS,  # nats-server: 2m
    "cipher": "chachapoly",
    "max_outstanding_catchup": 64 << 20,
    "max_buffered_size": 128 << 20,
    "max_buffered_msgs": 100_000,
    "request_queue_limit": 10_000,
    "info_queue_limit": 10_000,
    "max_concurrent_io": 4096,
}

SWITCHES: dict[Any, bool] = {
    True: True,
    False: False,
    "enabled": True,
    "Enable": True,
    "disabled": False,
    "disable": False,
}

READ: list[tuple[dict[str, Any], str, object]] = [
    ({}, "enabled", True),
    ({"enabled": False}, "enabled", False),
    ({"enable": False}, "enabled", False),
    ({"max_mem": "1G"}, "max_memory_store", 1 << 30),
    ({"max_mem_store": 5}, "max_memory_store", 5),
    ({"max_file": "2T"}, "max_file_store", 2 << 40),
    ({"MAX_FILE_STORE": 0}, "max_file_store", 0),
    ({"store": "/x"}, "store_dir", Path("/x")),
    ({"sync": "ALWAYS"}, "sync_interval", SYNC_ALWAYS),
    ({"sync_interval": "2m"}, "sync_interval", timedelta(minutes=2)),
    ({"ek": "k"}, "key", "k"),
    ({"cipher": "ChaCha"}, "cipher", "chachapoly"),
    ({"cipher": "aes"}, "cipher", "aes"),
    ({"unique_tag": " AZ: "}, "unique_tag", "az:"),
    ({"max_buffered_size": 0}, "max_buffered_size", 128 << 20),
    ({"max_buffered_size": "4K"}, "max_buffered_size", 4096),
    ({"request_queue_limit": 5}, "info_queue_limit", 5),
    ({"request_queue_limit": 5, "info_queue_limit": 7}, "info_queue_limit", 7),
    (
        {"limits": {"max_ack_pending": 10, "duplicate_window": "1h"}},
        "limits",
        JetStreamLimits(max_ack_pending=10, duplicate_window=timedelta(hours=1)),
    ),
]

MISTAKES: list[tuple[Any, str]] = [
    ("yes", "jetstream: must be enabled, disabled, or a mapping, not 'yes'"),
    (3, "jetstream: must be a mapping of settings"),
    ({"strikt": True}, """jetstream: unknown field "strikt"; did you mean 'strict'?"""),
    ({"strict": "perhaps"}, "jetstream: strict must be true or false, not 'perhaps'"),
    ({"max_mem": "1g"}, "jetstream: max_memory_store must be a number of bytes, or a text that"),
    ({"max_mem": -2}, "jetstream: max_memory_store must be -1 to 9223372036854775807, not -2"),
    ({"max_file": True}, "jetstream: max_file_store must be a number of bytes"),
    ({"max_file": 1, "max_file_store": 1}, "jetstream: max_file_store is given twice"),
    ({"domain": "a.b"}, "jetstream: invalid domain name: may not contain ., * or >"),
    ({"sync": "often"}, "jetstream: sync_interval is no duration such as '10s' or '2m'"),
    ({"sync": -1}, "jetstream: sync_interval must be longer than 0s, not -1"),
    ({"cipher": "rot13"}, "jetstream: cipher must be one of chachapoly, chacha, aes"),
    ({"prev_key": "k"}, "jetstream: prev_key needs a key"),
    ({"max_concurrent_io": 3}, "jetstream: max_concurrent_io must be 4 to 8192, not 3"),
    ({"limits": {"max_ack": 1}}, 'jetstream: limits: unknown field "max_ack"; did you mean'),
    ({"limits": 5}, "jetstream: limits: must be a mapping of settings"),
]


def test_defaults_are_the_references() -> None:
    options = Options().jetstream
    assert {name: getattr(options, name) for name in DEFAULTS} == DEFAULTS


def test_every_setting_says_what_it_means() -> None:
    settings = [*fields(JetStreamOptions), *fields(JetStreamLimits)]
    assert all(setting.metadata["kind"].description for setting in settings)
    assert set(ALIASES.values()) <= {setting.name for setting in settings}


@pytest.mark.parametrize("given", SWITCHES)
def test_on_and_off(given: bool | str) -> None:
    assert make_options(jetstream=given).jetstream.enabled is SWITCHES[given]


@pytest.mark.parametrize(("given", "name", "value"), READ)
def test_what_a_mapping_says(given: dict[str, Any], name: str, value: object) -> None:
    options = make_options(jetstream=given).jetstream
    assert getattr(options, name) == value
    assert options.enabled is (value if name == "enabled" else True)


@pytest.mark.parametrize(("given", "beginning"), MISTAKES)
def test_a_mistake_is_one_line(given: object, beginning: str) -> None:
    with pytest.raises(OptionsError) as caught:
        make_options(jetstream=given)
    assert str(caught.value).startswith(beginning)
    assert "\n" not in str(caught.value)


def test_keys_are_never_shown() -> None:
    options = make_options(jetstream={"key": "hush", "prev_key": "silence"})
    assert "hush" not in repr(options)
    assert "silence" not in repr(options)
    with pytest.raises(OptionsError) as caught:
        make_options(jetstream={"key": b"hush", "strict": "silence"})
    assert "hush" not in str(caught.value)


def test_switching_it_off_keeps_its_other_settings() -> None:
    """§1: `-js=false` overrides the file."""
    base = make_options(jetstream={"domain": "hub"})
    assert make_options(base, jetstream=False).jetstream == replace(base.jetstream, enabled=False)


def test_the_later_store_dir_wins_but_two_at_once_are_a_mistake() -> None:
    base = make_options(jetstream={"store_dir": "/a", "domain": "hub"})
    later = make_options(base, store_dir="/b")
    assert (later.store_dir, later.jetstream.store_dir) == (Path("/b"), None)
    assert later.jetstream.domain == "hub"
    with pytest.raises(OptionsError, match="store_dir is given twice"):
        make_options(jetstream={"store_dir": "/a"}, store_dir="/b")


def test_what_is_left_open_is_three_quarters_of_the_machine(tmp_path: Path) -> None:
    options = JetStreamOptions(store_dir=tmp_path / "not" / "there")
    chosen = resolved(options)
    assert chosen.max_memory_store == memory_bytes() > 1 << 20
    assert chosen.max_file_store > 1 << 20
    assert replace(chosen, max_memory_store=-1, max_file_store=-1) == options
    assert resolved(replace(options, max_memory_store=0, max_file_store=7)) == replace(
        options, max_memory_store=0, max_file_store=7
    )


def test_a_disk_that_cannot_be_asked_is_guessed(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert disk_bytes(file / "below") == 1 << 40


def test_where_its_files_are() -> None:
    assert JetStreamOptions(store_dir="/x").directory == Path("/x/jetstream")
    assert default_store_dir().name == f"natsd-{os.geteuid()}"


def test_what_jetstream_holds_counts_as_free(tmp_path: Path) -> None:
    """A restart on a disk that JetStream has filled leaves the limit as it was."""
    directory = tmp_path / "jetstream"
    (directory / "deep" / "down").mkdir(parents=True)
    held = 64 << 20
    file = directory / "deep" / "down" / "file"
    with file.open("wb") as opened:
        os.posix_fallocate(opened.fileno(), 0, held)
    (directory / "link").symlink_to(file)

    assert held <= held_bytes(directory) < held + (1 << 20)
    assert held_bytes(directory / "missing") == 0
    free = disk_bytes(tmp_path / "elsewhere")
    assert abs(disk_bytes(directory) - free - held // 4 * 3) < held // 4  # others write as well
    assert three_quarters(0, 100 << 20) == 75 << 20


def test_a_setting_of_the_section_by_itself() -> None:
    options = make_options(jetstream=True, **{"jetstream.max_file_store": "10G"})
    assert options.jetstream == JetStreamOptions(enabled=True, max_file_store=10 << 30)
    options = make_options(options, **{"jetstream.max_memory_store": 1 << 20})
    assert (options.jetstream.enabled, options.jetstream.max_file_store) == (True, 10 << 30)
    assert options.jetstream.max_memory_store == 1 << 20
    assert not make_options(**{"jetstream.max_file_store": 1}).jetstream.enabled
    with pytest.raises(OptionsError, match="max_file_store"):
        make_options(**{"jetstream.max_file_store": "much"})
    with pytest.raises(OptionsError, match="max_files"):
        make_options(**{"jetstream.max_files": 1})
