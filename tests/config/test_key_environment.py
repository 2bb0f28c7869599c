"""JetStream's keys from the environment: where they come from, and what is refused."""

from pathlib import Path

import pytest

from natsd.config import OptionsError, make_options
from natsd.config.key_environment import with_secrets

ON = {"jetstream": True, "port": 4222}


def test_keys_and_cipher() -> None:
    environment = {
        "NATSD_JETSTREAM_KEY": "new",
        "NATSD_JETSTREAM_PREV_KEY": "old",
        "NATSD_JETSTREAM_CIPHER": "aes",
    }
    options = make_options(**with_secrets(ON, environment))
    jetstream = options.jetstream
    assert (jetstream.enabled, options.port) == (True, 4222)
    assert (jetstream.key, jetstream.prev_key, jetstream.cipher) == ("new", "old", "aes")
    assert "new" not in repr(options)


def test_files_that_hold_them(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("from a file\n")
    environment = {"NATSD_JETSTREAM_KEY_FILE": str(path)}
    assert make_options(**with_secrets(ON, environment)).jetstream.key == "from a file"


@pytest.mark.parametrize("settings", [{}, {"jetstream": False}])
def test_without_jetstream_they_mean_nothing(settings: dict[str, bool]) -> None:
    assert with_secrets(settings, {"NATSD_JETSTREAM_KEY": "x"}) == settings


def test_an_environment_without_them_changes_nothing() -> None:
    assert with_secrets(ON, {"NATSD_JETSTREAM_KEY": "", "HOME": "/"}) == ON


def test_what_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n")
    for environment, text in (
        ({"KEY": "x", "KEY_FILE": str(empty)}, "exclude each other"),
        ({"KEY_FILE": str(tmp_path / "none")}, "No such file"),
        ({"KEY_FILE": str(empty)}, "holds no key"),
    ):
        named = {f"NATSD_JETSTREAM_{name}": value for name, value in environment.items()}
        with pytest.raises(OptionsError, match=text):
            with_secrets(ON, named)
