"""The keys of encrypted stores: one of the operator, one of each stream, one of each block.

    operator's key ──HKDF──▶ wrapping key ──AEAD──▶ stream's data key ──HKDF──▶ key of a block
    (configuration)          (salt, context)        (32 random bytes,           (seed and id of
                                                     wrapped in key.db)          the block)

    key.db, two files (twin_file.py), body:
      0 version u16 · 2 cipher u16 · 4 salt, 32 bytes · 36 nonce, 12 bytes · 48 wrapped data key, 48

Promise
- The operator's key is never stored, and a data key only wrapped. The context, the stream's name,
  is authenticated: a key file moved to another stream opens nothing.
- `key.db` is two files: a file that is damaged, lost or another stream's is written anew from the
  other one.
- The file opens with the key or with the previous key; in the latter case it is wrapped anew with
  the key, so that the previous key is needed once. The data key, and with it all blocks, stays.
- A key that opens nothing, a damaged file and a store that was never encrypted raise different
  errors; every refusal is one line that names the file.
- Randomness is an argument: `random(n)` returns n unpredictable bytes (`os.urandom`).

Source: docs/store.md; nats-server's options `key`, `prev_key` and `cipher`, and its `decryptMeta`.
The derivation is HKDF (RFC 5869), where nats-server's `jsKeyGen` uses HMAC-SHA256 of the context.
"""

import enum
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from natsd.store.codec.block_encoding import Aead, Seal
from natsd.store.disk.disk import Disk
from natsd.store.disk.twin_file import read_twins, replace_twins, twins_exist
from natsd.store.errors import (
    EncryptionError,
    KeyFileDamaged,
    KeyMissing,
    KeyUnexpected,
    KeyWrong,
)

Random: TypeAlias = Callable[[int], bytes]

KEY_FILE: Final = "key.db"
ENCRYPTING_FILE: Final = "encrypting.db"
"""File that holds the key while a plain store is being encrypted (encrypting.py)."""
GIVE_KEY: Final = "; give the key that it was written with"
GIVE_OTHER: Final = f"{GIVE_KEY}, or give that one as the previous key to change it"
"""What the user is to do, at the end of a refusal."""
MAGIC: Final = b"NATSDKEY"
VERSION: Final = 1
KEY_BYTES: Final = 32
SALT_BYTES: Final = 32
NONCE_BYTES: Final = 12
BODY: Final = struct.Struct(f"<HH{SALT_BYTES}s{NONCE_BYTES}s{KEY_BYTES + 16}s")
BLOCK_SALT: Final = struct.Struct("<QI")


class Cipher(enum.IntEnum):
    """A cipher of nats-server's option `cipher`; the number is the one stored in files."""

    CHACHA20_POLY1305 = 1
    AES_256_GCM = 2


@dataclass(frozen=True, slots=True)
class OperatorKeys:
    """The keys from the configuration.

    `key` is None if the store is not encrypted; `previous` is set only while keys are being
    rotated. `cipher` is that of new streams and of small files.
    """

    key: bytes | None = field(default=None, repr=False)
    previous: bytes | None = field(default=None, repr=False)
    cipher: Cipher = Cipher.CHACHA20_POLY1305


@dataclass(frozen=True, slots=True)
class DataKey:
    """The key of one stream, in memory only."""

    cipher: Cipher
    secret: bytes = field(repr=False)

    def seal(self, seed: int, block_id: int, random: Random) -> Seal:
        """Return the encryption of a block; each pair of seed and block number has its own key.

        Other files that have a random seed and a number use it, too.
        """
        key = derive(self.secret, BLOCK_SALT.pack(seed, block_id), b"natsd block")
        return Seal(int(self.cipher), make_aead(self.cipher, key), random)


@dataclass(frozen=True, slots=True)
class OpenedKey:
    """The data key, and what was done to its file (repaired, rotated), one line each."""

    data_key: DataKey
    notes: tuple[str, ...]


def create_data_key(
    disk: Disk, directory: Path, context: str, operator: OperatorKeys, random: Random
) -> DataKey | None:
    """Create the key of a new stream, on disk before anything is encrypted with it.

    Return None if the operator has no key. Blocks on the disk. Raises `OSError`.
    """
    if operator.key is None:
        return None
    return create_key_file(disk, directory / KEY_FILE, context, operator, random)


def create_key_file(
    disk: Disk, path: Path, context: str, operator: OperatorKeys, random: Random
) -> DataKey:
    """Create a new data key and write it, wrapped, to `path`; it is on disk on return.

    The operator must have a key. Blocks on the disk. Raises `OSError`.
    """
    data_key = DataKey(operator.cipher, random(KEY_BYTES))
    write_key_file(disk, path, context, operator, data_key, random)
    return data_key


def write_key_file(
    disk: Disk,
    path: Path,
    context: str,
    operator: OperatorKeys,
    data_key: DataKey,
    random: Random,
) -> None:
    """Wrap the data key and write it to `path`; it is on disk on return.

    The operator must have a key. Blocks on the disk. Raises `OSError`.
    """
    assert operator.key is not None
    salt, nonce = random(SALT_BYTES), random(NONCE_BYTES)
    aead = make_aead(data_key.cipher, _wrapping_key(operator.key, salt, context))
    wrapped = aead.encrypt(nonce, data_key.secret, context.encode())
    body = BODY.pack(VERSION, data_key.cipher, salt, nonce, wrapped)
    replace_twins(disk, path, MAGIC, body, _place(path, context))


def open_data_key(
    disk: Disk, directory: Path, context: str, operator: OperatorKeys, random: Random
) -> OpenedKey | None:
    """Return the key of a stream that exists.

    Return None if the stream is not encrypted and the operator has no key. Blocks on the disk.
    Raises `KeyUnexpected`, `KeyMissing`, `KeyWrong`, `KeyFileDamaged` or `OSError`.
    """
    path = directory / KEY_FILE
    if not twins_exist(disk, path):
        _check_unfinished(disk, directory / ENCRYPTING_FILE, operator)
        if operator.key is None:
            return None
        raise KeyUnexpected(f"{path} is missing: a key is given, but the store is not encrypted")
    return open_key_file(disk, path, context, operator, random)


def _check_unfinished(disk: Disk, path: Path, operator: OperatorKeys) -> None:
    if not twins_exist(disk, path):
        return
    if operator.key is None:
        raise KeyMissing(
            f"{path} says that the store is half encrypted, but no key is given{GIVE_KEY}"
        )
    raise KeyUnexpected(f"{path} says that the store is half encrypted: a server finishes that")


def open_key_file(
    disk: Disk, path: Path, context: str, operator: OperatorKeys, random: Random
) -> OpenedKey:
    """Return the data key of a key file, and repair or rotate the file if needed.

    A file that cannot be written anew is noted, not raised. Blocks on the disk. Raises
    `KeyMissing`, `KeyWrong`, `KeyFileDamaged` or `OSError`.
    """
    if operator.key is None:
        raise KeyMissing(f"{path} says that the store is encrypted, but no key is given{GIVE_KEY}")
    found = read_twins(disk, path, _place(path, context))
    bodies = [each.body for each in found.versions if each.magic == MAGIC]
    data_key, with_previous = _unwrap_any(path, bodies, context, operator)
    notes = [f"{damage}: written anew" for damage in found.damage]
    if with_previous:
        notes.append(f"{path}: opened with the previous key, wrapped with the new one")
    if with_previous or not found.is_whole:
        try:
            write_key_file(disk, path, context, operator, data_key, random)
        except OSError as error:
            notes.append(f"{path}: could not be written anew: {error}")
    return OpenedKey(data_key, tuple(notes))


def derive(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """Return 32 bytes from which neither `secret` nor other derived keys follow (HKDF-SHA256)."""
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=info).derive(secret)


def make_aead(cipher: Cipher, key: bytes) -> Aead:
    """Return the cipher with that key of 32 bytes."""
    return ChaCha20Poly1305(key) if cipher is Cipher.CHACHA20_POLY1305 else AESGCM(key)


def _place(path: Path, context: str) -> str:
    """Return the file's path in the store directory; the context is its directory's path."""
    return f"{context}/{path.name}"


def _unwrap_any(
    path: Path, bodies: list[bytes], context: str, operator: OperatorKeys
) -> tuple[DataKey, bool]:
    """Return the result of `_unwrap` for the first body that opens; raises EncryptionError."""
    refusal: EncryptionError = KeyFileDamaged(f"{path} is damaged: no copy of the key verifies")
    for body in bodies:
        if len(body) != BODY.size:
            continue
        try:
            return _unwrap(path, body, context, operator)
        except EncryptionError as error:
            refusal = error
    raise refusal


def _unwrap(path: Path, body: bytes, context: str, operator: OperatorKeys) -> tuple[DataKey, bool]:
    """Return the data key, and whether the previous key opened it."""
    version, cipher_number, salt, nonce, wrapped = BODY.unpack(body)
    if version != VERSION or cipher_number not in Cipher.__members__.values():
        raise KeyFileDamaged(f"{path} is of version {version}, cipher {cipher_number}: unknown")
    cipher = Cipher(cipher_number)
    for key in (operator.key, operator.previous):
        if key is None:
            continue
        aead = make_aead(cipher, _wrapping_key(key, salt, context))
        try:
            secret = aead.decrypt(nonce, wrapped, context.encode())
        except InvalidTag:
            continue
        return DataKey(cipher, secret), key is not operator.key
    tried = "the key" if operator.previous is None else "neither the key nor the previous one"
    opens = "does not open it" if operator.previous is None else "opens it"
    raise KeyWrong(f"{path}: {tried} {opens}{GIVE_OTHER}")


def _wrapping_key(key: bytes, salt: bytes, context: str) -> bytes:
    return derive(key, salt, b"natsd stream " + context.encode())
