"""A server whose key does not open its `member.json` does not take itself for a new one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from natsd.jetstream.meta_group.founding_record import RECORD_FILE, Record, write_record
from natsd.jetstream.meta_group.meta_group import MAGIC, MEMBER_FILE, check_member_files
from natsd.store.crypto.keys import OperatorKeys
from natsd.store.crypto.vault import Vault
from natsd.store.disk.real_disk import RealDisk
from natsd.store.errors import EncryptionError

NONE, OLD, NEW = OperatorKeys(), OperatorKeys(b"old"), OperatorKeys(b"new")
ROTATING = OperatorKeys(NEW.key, OLD.key)


def vault(root: Path, keys: OperatorKeys = NONE) -> Vault:
    return Vault(RealDisk(), root, os.urandom, keys)


@pytest.mark.parametrize("name", [MEMBER_FILE, RECORD_FILE])
@pytest.mark.parametrize("keys", [NONE, NEW])
def test_a_wrong_key_is_refused(tmp_path: Path, name: str, keys: OperatorKeys) -> None:
    if name == MEMBER_FILE:
        vault(tmp_path, OLD).write(tmp_path / MEMBER_FILE, MAGIC, b"{}")
    else:
        write_record(vault(tmp_path, OLD), tmp_path, Record())
    before = (tmp_path / name).read_bytes()
    with pytest.raises(EncryptionError, match=name):
        check_member_files(vault(tmp_path, keys), tmp_path)
    check_member_files(vault(tmp_path, OLD), tmp_path)
    check_member_files(vault(tmp_path, ROTATING), tmp_path)
    assert (tmp_path / name).read_bytes() == before


@pytest.mark.parametrize("content", [None, b"", b"damaged"])
def test_missing_and_damaged_files_are_no_matter_of_keys(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / MEMBER_FILE).write_bytes(content)
    check_member_files(vault(tmp_path, NEW), tmp_path)


def test_plain_files_may_get_a_key(tmp_path: Path) -> None:
    vault(tmp_path).write(tmp_path / MEMBER_FILE, MAGIC, b"{}")
    check_member_files(vault(tmp_path, NEW), tmp_path)
    assert vault(tmp_path, NEW).read(tmp_path / MEMBER_FILE, MAGIC) == b"{}"
    assert b"{}" not in (tmp_path / MEMBER_FILE).read_bytes()
