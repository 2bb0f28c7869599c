"""Small files: plain or sealed, read with the key or the previous key, or refused."""

import errno
import os
from pathlib import Path

import pytest

from natsd.store.crypto.keys import Cipher, OperatorKeys
from natsd.store.crypto.vault import Vault
from natsd.store.disk.doubled_file import Content, encode_doubled
from natsd.store.disk.real_disk import RealDisk
from natsd.store.disk.twin_file import copy_of
from natsd.store.errors import KeyMissing, KeyWrong
from tests.store.faulty_disk import FaultyDisk

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
    copy_of(path).rename(copy_of(other))
    with pytest.raises(KeyWrong):
        vault(tmp_path, NEW).read(other, MAGIC)


def test_a_file_for_another_place_is_read_there(tmp_path: Path, path: Path) -> None:
    built = tmp_path / "built.json"
    vault(tmp_path, NEW).write(built, MAGIC, BODY, place=path)
    built.rename(path)
    copy_of(built).rename(copy_of(path))
    assert vault(tmp_path, NEW).read(path, MAGIC) == BODY


def test_another_kind_of_file_says_nothing(tmp_path: Path, path: Path) -> None:
    for keys in (OperatorKeys(), NEW):
        vault(tmp_path, keys).write(path, MAGIC, BODY)
        assert vault(tmp_path, keys).read(path, b"NATSDXXX") is None


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("keys", [OperatorKeys(), NEW])
def test_one_damaged_copy_costs_nothing(
    tmp_path: Path,
    path: Path,
    keys: OperatorKeys,
    half: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    vault(tmp_path, keys).write(path, MAGIC, BODY)
    data = bytearray(path.read_bytes())
    data[half * len(data) // 2 + 30] ^= 1
    path.write_bytes(data)
    assert vault(tmp_path, keys).read(path, MAGIC) == BODY
    assert path.read_bytes() != data
    what = f"copy does not verify (4096 bytes at {half * 4096}); written anew"
    assert caplog.messages == [f"{path}: {what}"]


@pytest.mark.parametrize("wound", ["missing", "empty", "zeros", "older", "another's"])
@pytest.mark.parametrize("keys", [OperatorKeys(), NEW])
@pytest.mark.parametrize("is_copy", [False, True])
def test_either_file_may_be_lost(
    tmp_path: Path,
    path: Path,
    keys: OperatorKeys,
    wound: str,
    is_copy: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """If one of the two files is lost, it is logged in one line and written anew."""
    (tmp_path / "T").mkdir()
    other = tmp_path / "T" / "meta.json"
    vault(tmp_path, keys).write(other, MAGIC, b"another's")
    vault(tmp_path, keys).write(path, MAGIC, b"older")
    target = copy_of(path) if is_copy else path
    data = {
        "empty": b"",
        "zeros": bytes(8192),
        "older": target.read_bytes(),
        "another's": other.read_bytes(),
    }
    vault(tmp_path, keys).write(path, MAGIC, BODY)
    if wound == "missing":
        target.unlink()
    else:
        target.write_bytes(data[wound])
    assert vault(tmp_path, keys).read(path, MAGIC) == BODY
    assert {message.split(": ")[0] for message in caplog.messages} == {str(target)}
    assert all(message.endswith("; written anew") for message in caplog.messages)
    caplog.clear()
    assert vault(tmp_path, keys).read(path, MAGIC) == BODY
    assert path.read_bytes() == copy_of(path).read_bytes()
    assert caplog.messages == []


def test_a_file_of_an_earlier_version_gets_its_second_one(tmp_path: Path, path: Path) -> None:
    path.write_bytes(encode_doubled(Content(MAGIC, BODY)))
    assert vault(tmp_path).read(path, MAGIC) == BODY
    assert path.read_bytes() == copy_of(path).read_bytes()


def test_what_was_moved_as_a_whole_is_believed_at_its_new_place(tmp_path: Path, path: Path) -> None:
    vault(tmp_path).write(path, MAGIC, BODY)
    path.parent.rename(tmp_path / "T")
    assert vault(tmp_path).read(tmp_path / "T" / path.name, MAGIC) == BODY


def test_what_is_worth_having_but_not_needed_stops_nothing(
    tmp_path: Path, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`recall` returns None for a wrong key, for damage, and for a disk that reads nothing."""
    assert vault(tmp_path).recall(path, MAGIC, "it is made anew") is None
    assert caplog.messages == []
    vault(tmp_path, OLD).write(path, MAGIC, BODY)
    assert vault(tmp_path, NEW).recall(path, MAGIC, "it is made anew") is None
    for each in (path, copy_of(path)):
        each.write_bytes(b"")
    assert vault(tmp_path, NEW).recall(path, MAGIC, "it is made anew") is None
    assert caplog.messages[-1].endswith("no copy of it verifies; it is made anew")
    for each in (path, copy_of(path)):
        each.unlink()
        each.mkdir()
    assert vault(tmp_path, NEW).recall(path, MAGIC, "it is made anew") is None


@pytest.mark.parametrize("call", ["pwrite", "fsync", "rename", "sync_dir"])
@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("times", [1, 2])
def test_a_write_that_fails_changes_nothing(call: str, after: int, times: int) -> None:
    """A failed write leaves the old content for the next process.

    It does so after a power cut as well, if the old content could be put back on disk.
    """
    disk = FaultyDisk(seed=1)
    store = Vault(disk, Path("/"), os.urandom)
    path = Path("/meta.json")
    store.write(path, MAGIC, b"before")
    disk.fail(call, errno.EIO, after=after, times=times)
    try:
        store.write(path, MAGIC, b"refused")
    except OSError:
        expected = b"before"
    else:
        expected = b"refused"  # there was no further call of that name
    assert Vault(disk.kill(), Path("/"), os.urandom).read(path, MAGIC) == expected
    if times == 1:
        for seed in range(10):
            found = disk.kill().crash(seed)
            assert Vault(found, Path("/"), os.urandom).read(path, MAGIC) == expected
