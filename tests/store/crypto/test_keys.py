"""Keys: which key opens a key file, and what each refusal says.

The options are those of nats-server: `key`, `prev_key` and `cipher` (docs/store.md).
"""

import os
import shutil
from pathlib import Path

import pytest

from natsd.store.crypto.keys import (
    GIVE_OTHER,
    KEY_FILE,
    Cipher,
    DataKey,
    OpenedKey,
    OperatorKeys,
    create_data_key,
    open_data_key,
)
from natsd.store.disk.real_disk import RealDisk
from natsd.store.disk.twin_file import copy_of
from natsd.store.errors import KeyFileDamaged, KeyMissing, KeyUnexpected, KeyWrong

DISK = RealDisk()
OLD = OperatorKeys(b"old secret")
NEW = OperatorKeys(b"new secret")
ROTATING = OperatorKeys(b"new secret", previous=b"old secret")


def create(path: Path, operator: OperatorKeys = OLD) -> DataKey:
    data_key = create_data_key(DISK, path, "$G/ORDERS", operator, os.urandom)
    assert data_key is not None
    return data_key


def reopen(path: Path, operator: OperatorKeys, context: str = "$G/ORDERS") -> OpenedKey | None:
    return open_data_key(DISK, path, context, operator, os.urandom)


@pytest.mark.parametrize("cipher", list(Cipher))
def test_a_key_file_opens_with_its_key(tmp_path: Path, cipher: Cipher) -> None:
    data_key = create(tmp_path, OperatorKeys(b"old secret", cipher=cipher))
    opened = reopen(tmp_path, OLD)
    assert opened == OpenedKey(data_key, ())
    assert opened.data_key.cipher is cipher  # the file's cipher, not the configured one


def test_neither_key_is_in_the_file_or_in_a_repr(tmp_path: Path) -> None:
    data_key = create(tmp_path)
    data = (tmp_path / KEY_FILE).read_bytes()
    assert data_key.secret not in data
    assert b"old secret" not in data
    assert repr(data_key.secret) not in repr(data_key)
    assert "secret" not in repr(OLD)


def test_without_any_key_nothing_is_encrypted(tmp_path: Path) -> None:
    assert create_data_key(DISK, tmp_path, "$G/ORDERS", OperatorKeys(), os.urandom) is None
    assert reopen(tmp_path, OperatorKeys()) is None
    assert list(tmp_path.iterdir()) == []


def test_rotation_needs_the_previous_key_once(tmp_path: Path) -> None:
    data_key = create(tmp_path)
    opened = reopen(tmp_path, ROTATING)
    assert opened is not None
    assert opened.data_key == data_key
    assert opened.notes == (
        f"{tmp_path / KEY_FILE}: opened with the previous key, wrapped with the new one",
    )
    assert reopen(tmp_path, NEW) == OpenedKey(data_key, ())
    with pytest.raises(KeyWrong):
        reopen(tmp_path, OLD)


def test_a_wrong_key_is_told_in_one_line(tmp_path: Path) -> None:
    create(tmp_path)
    with pytest.raises(KeyWrong) as refusal:
        reopen(tmp_path, NEW)
    text = f"{tmp_path / KEY_FILE}: the key does not open it"
    assert str(refusal.value) == f"{text}{GIVE_OTHER}"
    with pytest.raises(KeyWrong) as refusal:
        reopen(tmp_path, OperatorKeys(b"x", previous=b"y"))
    text = f"{tmp_path / KEY_FILE}: neither the key nor the previous one opens it"
    assert str(refusal.value) == f"{text}{GIVE_OTHER}"


def test_an_encrypted_store_needs_a_key(tmp_path: Path) -> None:
    create(tmp_path)
    for operator in (OperatorKeys(), OperatorKeys(previous=b"old secret")):
        with pytest.raises(KeyMissing, match=r"key\.db says that the store is encrypted"):
            reopen(tmp_path, operator)


def test_a_store_that_was_never_encrypted_takes_no_key(tmp_path: Path) -> None:
    with pytest.raises(KeyUnexpected, match=r"key\.db is missing.*not encrypted"):
        reopen(tmp_path, OLD)


def test_a_key_file_of_another_stream_opens_nothing(tmp_path: Path) -> None:
    create(tmp_path)
    with pytest.raises(KeyWrong):
        reopen(tmp_path, OLD, context="$G/OTHERS")


@pytest.mark.parametrize("at", [0, 9, 17, 20, 60, 100, 115, 4096, 4105, 4200])
def test_a_damaged_copy_is_written_anew(tmp_path: Path, at: int) -> None:
    data_key = create(tmp_path)
    path = tmp_path / KEY_FILE
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)
    opened = reopen(tmp_path, OLD)
    assert opened is not None
    assert opened.data_key == data_key
    page = at // 4096 * 4096
    what = f"copy does not verify (4096 bytes at {page}): written anew"
    assert opened.notes == (f"{path}: {what}",)
    assert reopen(tmp_path, OLD) == OpenedKey(data_key, ())


def test_either_of_the_two_files_is_enough(tmp_path: Path) -> None:
    data_key = create(tmp_path)
    path = tmp_path / KEY_FILE
    for lost in (path, copy_of(path)):
        lost.unlink()
        opened = reopen(tmp_path, OLD)
        assert opened == OpenedKey(data_key, (f"{lost}: is missing: written anew",))
        assert reopen(tmp_path, OLD) == OpenedKey(data_key, ())


def test_the_file_of_another_stream_is_told_from_a_wrong_key(tmp_path: Path) -> None:
    data_key = create(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    create_data_key(DISK, other, "$G/OTHER", OLD, os.urandom)
    shutil.copy(other / KEY_FILE, tmp_path / KEY_FILE)
    opened = reopen(tmp_path, OLD)
    assert opened is not None
    assert opened.data_key == data_key
    (note,) = opened.notes
    assert "belongs to $G/OTHER/key.db" in note


def test_two_damaged_copies_are_told_from_a_wrong_key(tmp_path: Path) -> None:
    create(tmp_path)
    for path in (tmp_path / KEY_FILE, copy_of(tmp_path / KEY_FILE)):
        path.write_bytes(bytes(8192))
    with pytest.raises(KeyFileDamaged, match=r"key\.db is damaged"):
        reopen(tmp_path, OLD)


def test_each_block_has_a_key_of_its_own() -> None:
    data_key = DataKey(Cipher.AES_256_GCM, bytes(32))
    nonce = bytes(12)

    def random(n: int) -> bytes:
        return nonce[:n]

    seals = [data_key.seal(seed, block_id, random) for seed in (1, 2) for block_id in (1, 2)]
    assert len({seal.aead.encrypt(nonce, b"same", None) for seal in seals}) == 4
