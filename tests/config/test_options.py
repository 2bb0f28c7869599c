"""Settings: defaults of the reference (section 2.2), bounds, and one clear line for a mistake."""

from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from pathlib import Path

import pytest

from natsd.config import Options, OptionsError, make_options, resources
from natsd.config.resources import pending_bytes_max

DEFAULTS = {
    "host": "0.0.0.0",
    "port": 4222,
    "logtime": True,
    "max_control_line": 4096,
    "max_payload": 1024 * 1024,
    "max_pending": 64 * 1024 * 1024,
    "max_connections": 65536,
    "max_subscriptions": 0,
    "ping_interval": timedelta(minutes=2),
    "ping_max": 2,
    "write_deadline": timedelta(seconds=10),
    "max_closed_clients": 10_000,
    "http_port": 0,
}

MISTAKES = {
    "port": (70000, "port must be -1 to 65535, not 70000 (port to listen on"),
    "http_port": (-2, "http_port must be -1 to 65535, not -2"),
    "max_sub_tokens": (256, "max_sub_tokens must be 0 to 255, not 256"),
    "ping_interval": ("2x", "ping_interval is no duration such as '10s' or '2m'"),
    "write_deadline": (-1, "write_deadline must be longer than 0s, not -1"),
    "host": (3, "host must be a text, not 3"),
    "debug": ("perhaps", "debug must be true or false, not 'perhaps'"),
    "log_file": (4, "log_file must be a path, not 4"),
    "server_name": ("a b", "server name cannot contain spaces"),
    "prot": (4222, "unknown option 'prot'; did you mean 'port'?"),
    "max_pending": (1000, "max_payload (1048576) cannot be higher than max_pending (1000)"),
    "max_pending_total": (
        "1M",
        "max_pending (67108864) cannot be higher than max_pending_total (1048576)",
    ),
    "lame_duck_grace_period": (
        "2m",
        "lame duck grace period (2m0s) should be strictly lower than lame duck duration (2m0s)",
    ),
}


def test_defaults_are_the_references() -> None:
    options = Options()
    assert {name: getattr(options, name) for name in DEFAULTS} == DEFAULTS
    assert options.authorization.timeout == timedelta(seconds=2)


def test_every_setting_says_what_it_means() -> None:
    assert all(setting.metadata["kind"].description for setting in fields(Options))


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line(name: str) -> None:
    value, beginning = MISTAKES[name]
    with pytest.raises(OptionsError) as caught:
        make_options(**{name: value})
    assert str(caught.value).startswith(beginning)
    assert "\n" not in str(caught.value)


def test_zero_means_the_default_where_zero_makes_no_sense() -> None:
    options = make_options(port=0, max_payload=0, max_pending=0, ping_interval=0, ping_max="0")
    assert options == Options()


def test_zero_connections_means_none() -> None:
    assert make_options(max_connections=0).max_connections == 0


def test_values_take_their_type() -> None:
    options = make_options(port="-1", log_file="x.log", ping_interval="1m", auth_timeout=0.5)
    assert options.port == -1
    assert options.log_file == Path("x.log")
    assert options.ping_interval == timedelta(minutes=1)
    assert options.authorization.timeout == timedelta(milliseconds=500)


def test_options_are_frozen_and_can_be_built_upon() -> None:
    base = make_options(server_name="one", port=-1)
    with pytest.raises(FrozenInstanceError):
        base.port = 1  # type: ignore[misc]  # what the test is about
    assert make_options(base, debug=True) == make_options(server_name="one", port=-1, debug=True)


def test_verbose_tracing_traces() -> None:
    assert make_options(trace_verbose=True).trace


def test_secrets_are_never_shown() -> None:
    for options in (make_options(user="u", password="hush"), make_options(token="hush")):
        assert options.auth_required
        assert "hush" not in repr(options)
    with pytest.raises(OptionsError) as caught:
        make_options(password=b"hush")
    assert "hush" not in str(caught.value)


def test_pending_bytes_of_all_connections_are_bounded_by_the_memory_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mib = 1 << 20
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(resources, "_GROUP_LIMITS", (str(tmp_path / "none"), str(limit)))
    assert pending_bytes_max(make_options(max_pending_total="100M")) == 100 * mib
    limit.write_text("2147483648\n")
    assert pending_bytes_max(Options()) == 256 * mib
    limit.write_text("1000000\n")
    assert pending_bytes_max(Options()) == 128 * mib  # room for two slow connections
    limit.write_text("max\n")
    assert pending_bytes_max(Options()) >= 128 * mib
