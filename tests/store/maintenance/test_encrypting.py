"""A plain store that gets a key keeps all messages and is encrypted, also after interruptions."""

import asyncio
import os
from pathlib import Path

import pytest

from natsd.store.commit.volume import Volume
from natsd.store.crypto.keys import (
    ENCRYPTING_FILE,
    KEY_FILE,
    OperatorKeys,
    open_data_key,
    write_key_file,
)
from natsd.store.disk.disk import Disk
from natsd.store.disk.real_disk import RealDisk
from natsd.store.disk.twin_file import remove_twins
from natsd.store.errors import KeyMissing, KeyUnexpected
from natsd.store.file_store import FileOptions, FileStore
from natsd.store.maintenance.encrypting import encrypt_plain
from natsd.store.store import Limits
from tests.store.faulty_disk import FaultyDisk, PowerLoss

ROOT = Path("/store")
BLOCK_BYTES = 600
PLAIN = FileOptions(block_bytes_max=BLOCK_BYTES)
SEALED = FileOptions(block_bytes_max=BLOCK_BYTES, keys=OperatorKeys(b"key"), context="S")
SECRET = b"planted secret"


async def fill(disk: Disk, root: Path, options: FileOptions, count: int = 40) -> None:
    volume = Volume.open(disk, root, os.urandom, loop=asyncio.get_running_loop())
    store = await FileStore.open(volume, root / "S", Limits(), os.urandom, options)
    for number in range(count):
        store.append(f"s.{SECRET.decode()[:7]}", None, SECRET + b"%d" % number, number)
    await store.synced()
    await store.delete(7)
    await store.close()
    await volume.close()


async def payloads(disk: Disk, root: Path, options: FileOptions) -> list[bytes]:
    """Open the store and return the data of all its messages."""
    volume = Volume.open(disk, root, os.urandom, loop=asyncio.get_running_loop())
    try:
        store = await FileStore.open(volume, root / "S", Limits(), os.urandom, options)
        assert not store.damage
        last = store.state().last_sequence
        found = [await store.load(s) for s in range(1, last + 1) if store.log.has(s)]
        await store.close()
        return [message.data for message in found]
    finally:
        await volume.close()


def in_clear(directory: Path) -> list[Path]:
    """Return the files that contain the secret."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    return [path for path in files if SECRET[:7] in path.read_bytes()]


CALLS_MAX = 200
EXPECTED = [SECRET + b"%d" % number for number in range(40) if number != 6]


@pytest.mark.parametrize("compress", [False, True])
async def test_all_of_it_is_there_and_nothing_in_clear(tmp_path: Path, compress: bool) -> None:
    options = FileOptions(block_bytes_max=BLOCK_BYTES, compress=compress)
    await fill(RealDisk(), tmp_path, options)
    assert await payloads(RealDisk(), tmp_path, SEALED) == EXPECTED
    assert in_clear(tmp_path) == []
    assert await payloads(RealDisk(), tmp_path, SEALED) == EXPECTED
    with pytest.raises(KeyMissing):
        await payloads(RealDisk(), tmp_path, PLAIN)


async def test_power_may_fail_at_any_point() -> None:
    """An opening completes an encryption that a power cut interrupted at any call."""
    for cut in range(0, CALLS_MAX, 2):
        disk = FaultyDisk(cut)
        await fill(disk, ROOT, PLAIN, 12)
        disk.power_fails_at = cut
        is_done = encrypts(disk)
        after = disk.crash(cut)
        assert len(await payloads(after, ROOT, SEALED)) == 11, cut
        if is_done:
            return
    pytest.fail("it never came to its end")


def encrypts(disk: Disk) -> bool:
    """Encrypt the plain store; return False if the disk failed."""
    try:
        encrypt_plain(disk, ROOT / "S", "S", SEALED.keys, os.urandom)
    except (PowerLoss, OSError):
        return False
    return True


def rename_key(directory: Path, name: str) -> None:
    """Move the key to a key file of another name."""
    opened = open_data_key(RealDisk(), directory, "S", SEALED.keys, os.urandom)
    assert opened is not None
    path, key = directory / name, opened.data_key
    write_key_file(RealDisk(), path, "S", SEALED.keys, key, os.urandom)
    remove_twins(RealDisk(), directory / KEY_FILE)


async def test_a_half_encrypted_store_needs_its_key(tmp_path: Path) -> None:
    await fill(RealDisk(), tmp_path, SEALED)
    rename_key(tmp_path / "S", ENCRYPTING_FILE)
    with pytest.raises(KeyMissing, match="half encrypted"):
        await payloads(RealDisk(), tmp_path, PLAIN)
    assert await payloads(RealDisk(), tmp_path, SEALED) == EXPECTED


async def test_what_is_encrypted_already_is_left_alone(tmp_path: Path) -> None:
    """An encrypted store without its key file is refused and left as it is, without a new key."""
    await fill(RealDisk(), tmp_path, SEALED)
    remove_twins(RealDisk(), tmp_path / "S" / KEY_FILE)
    before = {path: path.read_bytes() for path in (tmp_path / "S").iterdir()}
    with pytest.raises(KeyUnexpected, match=r"is encrypted, but key\.db is missing"):
        await payloads(RealDisk(), tmp_path, SEALED)
    assert {path: path.read_bytes() for path in (tmp_path / "S").iterdir()} == before


async def test_damage_is_not_sealed_up(tmp_path: Path) -> None:
    await fill(RealDisk(), tmp_path, PLAIN)
    path = tmp_path / "S" / "000002.blk"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(KeyUnexpected, match=r"000002\.blk is damaged"):
        await payloads(RealDisk(), tmp_path, SEALED)
    assert path.read_bytes() == data
    assert not (tmp_path / "S" / ENCRYPTING_FILE).exists()
