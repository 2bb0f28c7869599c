"""Small files: plain or sealed, read again with the key, the previous one, or not at all."""

import os
from pathlib import Path

import pytest

from natsd.store.disk import RealDisk
from natsd.store.errors import KeyMissing, KeyWrong
from natsd.store.keys import Cipher, OperatorKeys
from natsd.store.vault import Vault

MAGIC = b"NATSDTST"
BODY = b'{"config":"planted secret"}'
OLD = OperatorKeys(b"old")
NEW = OperatorKeys(b"new")
ROTATING = OperatorKeys(b"new", previous=b"old")


def vault(root: Path, keys: OperatorKeys | None = None) -> Vault:
    return Vault(RealDisk(), root, os.urandom, keys or OperatorKeys())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "S").mkdir()
    return tmp_path / "S" / "meta.json"


def test_without_a_key_it_is_plain(tmp_path: Path, path: Path) -> None:
    vault(tmp_path).write(path, MAGIC, BODY)
    assert BODY in path.read_bytes()
    assert vault(tmp_path).read(path, MAGIC) == BODY


@pytest.mark.parametrize("cipher", Cipher)
def test_with_a_key_it_says_nothing(tmp_path: Path, path: Path, cipher: Cipher) -> None:
    keys = OperatorKeys(b"secret", cipher=cipher)
    vault(tmp_path, keys).write(path, MAGIC, BODY)
    assert b"planted" not in path.read_bytes()
    assert MAGIC not in path.read_bytes()
    assert vault(tmp_path, keys).read(path, MAGIC) == BODY
    assert vault(tmp_path, OperatorKeys(b"secret")).read(path, MAGIC) == BODY


def test_the_previous_key_is_needed_once(tmp_path: Path, path: Path) -> None:
    vault(tmp_path, OLD).write(path, MAGIC, BODY)
    assert vault(tmp_path, ROTATING).read(path, MAGIC) == BODY
    assert vault(tmp_path, NEW).read(path, MAGIC) == BODY
    with pytest.raises(KeyWrong):
        vault(tmp_path, OLD).read(path, MAGIC)


def test_a_plain_file_is_sealed_as_it_is_read(tmp_path: Path, path: Path) -> None:
    vault(tmp_path).write(path, MAGIC, BODY)
    assert vault(tmp_path, NEW).read(path, MAGIC) == BODY
    assert b"planted" not in path.read_bytes()
    assert vault(tmp_path, NEW).read(path, MAGIC) == BODY


def test_refusals_name_the_file_and_change_nothing(tmp_path: Path, path: Path) -> None:
    vault(tmp_path, OLD).write(path, MAGIC, BODY)
    before = path.read_bytes()
    for keys, error, text in (
        (OperatorKeys(), KeyMissing, "is encrypted, but no key is given"),
        (NEW, KeyWrong, "the key does not open it"),
        (OperatorKeys(b"x", previous=b"y"), KeyWrong, "neither the key nor the previous one"),
    ):
        with pytest.raises(error, match=f"^{path}.*{text}"):
            vault(tmp_path, keys).read(path, MAGIC)
        assert path.read_bytes() == before


def test_a_file_at_another_place_opens_nothing(tmp_path: Path, path: Path) -> None:
    vault(tmp_path, NEW).write(path, MAGIC, BODY)
    other = path.with_name("other.json")
    path.rename(other)
    with pytest.raises(KeyWrong):
        vault(tmp_path, NEW).read(other, MAGIC)


def test_a_file_for_another_place_is_read_there(tmp_path: Path, path: Path) -> None:
    built = tmp_path / "built.json"
    vault(tmp_path, NEW).write(built, MAGIC, BODY, place=path)
    built.rename(path)
    assert vault(tmp_path, NEW).read(path, MAGIC) == BODY


def test_another_kind_of_file_says_nothing(tmp_path: Path, path: Path) -> None:
    for keys in (OperatorKeys(), NEW):
        vault(tmp_path, keys).write(path, MAGIC, BODY)
        assert vault(tmp_path, keys).read(path, b"NATSDXXX") is None


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("keys", [OperatorKeys(), NEW])
def test_one_damaged_copy_costs_nothing(
    tmp_path: Path, path: Path, keys: OperatorKeys, half: int
) -> None:
    vault(tmp_path, keys).write(path, MAGIC, BODY)
    data = bytearray(path.read_bytes())
    data[half * len(data) // 2 + 30] ^= 1
    path.write_bytes(data)
    assert vault(tmp_path, keys).read(path, MAGIC) == BODY
    assert path.read_bytes() != data
