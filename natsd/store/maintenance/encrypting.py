"""Encryption of a plain store that gets a key: block by block, before the store opens.

    encrypting.db   a new key, wrapped as in key.db          │ both kinds of block are there
    000001.blk …    replaced by the same block, encrypted    │
    index.db        removed: it is made anew                 │
    key.db          the same key; encrypting.db is removed   │ from here on the store is encrypted

Promise
- After a crash at any point the next opening goes on: each block is either the old one or the new
  one, and its bytes show which. Nothing is lost, and nothing is encrypted twice.
- Nothing is changed if a block is damaged, or encrypted with a key whose file is gone.
- The bytes of replaced files that the file system keeps are not overwritten.

All functions here block on the disk and raise OSError. Source: nats-server's
`msgBlock.convertToEncrypted` (server/filestore.go).
"""

from pathlib import Path

from natsd.store.block.blocks import MsgBlock
from natsd.store.block.stored_blocks import NEW_SUFFIX, Read, StoredBlocks, block_id_of, is_followed
from natsd.store.codec.block_encoding import begins_encrypted
from natsd.store.crypto.keys import (
    ENCRYPTING_FILE,
    KEY_FILE,
    OperatorKeys,
    Random,
    create_key_file,
    open_key_file,
    write_key_file,
)
from natsd.store.disk.disk import Disk
from natsd.store.disk.doubled_file import read_file
from natsd.store.disk.twin_file import remove_twins, twins_exist
from natsd.store.errors import KeyUnexpected
from natsd.store.recovery.index_db import INDEX_NAME

_BLOCK_BYTES_MAX = (1 << 31) - 1


def encrypt_plain(
    disk: Disk, directory: Path, context: str, operator: OperatorKeys, random: Random
) -> list[str]:
    """Encrypt the blocks of a store without key.db; return log lines about it.

    Blocks on the disk. Raises EncryptionError.
    """
    path = directory / ENCRYPTING_FILE
    names = disk.listdir(directory)
    ids = sorted(filter(None, map(block_id_of, names)))
    plain = StoredBlocks(disk, directory, random, block_bytes_max=_BLOCK_BYTES_MAX)
    if twins_exist(disk, path):
        data_key = open_key_file(disk, path, context, operator, random).data_key
    else:
        for block_id in ids:
            _read_plain(plain, block_id, is_last=block_id == ids[-1])
        data_key = create_key_file(disk, path, context, operator, random)
    sealed = StoredBlocks(
        disk, directory, random, block_bytes_max=_BLOCK_BYTES_MAX, data_key=data_key
    )
    for block_id in ids:
        _encrypt(plain, sealed, block_id, is_last=block_id == ids[-1])
    leftovers = [name for name in names if name == INDEX_NAME or name.endswith(NEW_SUFFIX)]
    sealed.remove_files([directory / name for name in leftovers])
    write_key_file(disk, directory / KEY_FILE, context, operator, data_key, random)
    remove_twins(disk, path)
    return [f"{directory}: {len(ids)} blocks were plain, and are encrypted now"]


def _encrypt(plain: StoredBlocks, sealed: StoredBlocks, block_id: int, *, is_last: bool) -> None:
    """Replace one block's file by its encrypted form, unless it is encrypted already."""
    path = plain.path_of(block_id)
    if begins_encrypted(read_file(plain.disk, path)):
        return
    read = _read_plain(plain, block_id, is_last=is_last)
    scan = read.scan
    if not scan.readable:
        sealed.remove_files([path])  # the block has no complete commit, so it never counted
        return
    block = MsgBlock.from_scan(scan, _BLOCK_BYTES_MAX)
    is_compressed = read.unwrapped is not None
    data = sealed.sealed_bytes(
        scan.data[: scan.end], block, compress=is_compressed, is_followed=is_followed(scan.data)
    )
    sealed.replace_file(path, data)


def _read_plain(plain: StoredBlocks, block_id: int, *, is_last: bool) -> Read:
    """Read and verify a plain block; raise KeyUnexpected if it is encrypted or damaged."""
    path = plain.path_of(block_id)
    data = read_file(plain.disk, path)
    if begins_encrypted(data):
        raise KeyUnexpected(f"{path} is encrypted, but {KEY_FILE} is missing")
    read = plain.scan(data, block_id, proven=0 if is_last else -1)
    if read.damage or not (read.scan.readable or is_last):
        raise KeyUnexpected(f"{path} is damaged: to be repaired before it can be encrypted")
    return read
