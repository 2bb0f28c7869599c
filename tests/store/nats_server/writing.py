"""Writes a stream's directory as nats-server does: a second description of its format.

write_stream(directory, "A", Written(messages, removed={3}, last_sequence=9))
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from natsd.store.backup.snappy_frames import FramePacker
from natsd.store.consumer.consumer_state import ConsumerState
from natsd.store.crypto.keys import Cipher
from natsd.store.nats_server.blocks import highway_hash
from natsd.store.nats_server.consumer_file import encode_consumer
from natsd.store.nats_server.encryption import NONCE_BYTES, FileKey, seal

KEY = b"secret"
TOMBSTONE, ERASED = 1 << 62, 1 << 63
CREATED = "2026-01-02T03:04:05Z"


@dataclass(frozen=True)
class Message:
    sequence: int
    subject: bytes
    data: bytes = b""
    headers: bytes = b""
    time_ns: int = 1


@dataclass
class Written:
    """A stream: all messages that were stored, and those that are removed."""

    messages: Sequence[Message] = ()
    erased: Collection[int] = ()  # of the messages, overwritten in their block
    tombstones: Sequence[int] = ()  # behind the last message
    per_block: int = 1_000
    is_compressed: bool = False
    cipher: Cipher | None = None
    config: dict[str, Any] = field(default_factory=dict)
    consumers: dict[str, tuple[dict[str, Any], ConsumerState | None]] = field(default_factory=dict)
    torn: bytes = b""  # behind the last record


def record(message: Message, key: bytes, flags: int = 0) -> bytes:
    """Return the record of a message; `key` is that of the block's checksums."""
    middle = struct.pack("<Qq", message.sequence | flags, message.time_ns)
    content = message.subject + message.headers + message.data
    checksum = highway_hash(key, middle + content)
    length = 22 + len(content) + 8
    headers = b""
    if message.headers:
        length += 4
        headers = struct.pack("<I", len(message.headers)) + message.headers
    prefix = struct.pack("<I", length | (1 << 31 if message.headers else 0))
    sized = struct.pack("<H", len(message.subject))
    return prefix + middle + sized + message.subject + headers + message.data + checksum


def hash_key(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def write_stream(account: Path, name: str, stream: Written) -> Path:
    """Write the stream below the account's directory; return its directory."""
    directory = account / "streams" / name
    messages = directory / "msgs"
    messages.mkdir(parents=True)
    config = {"name": name, "subjects": ["s.>"], "storage": "file", "retention": "limits"}
    write_meta(directory, account.name, name, name, {**config, **stream.config}, stream.cipher)
    for consumer, (settings, state) in stream.consumers.items():
        place = directory / "obs" / consumer
        place.mkdir(parents=True)
        settings = {"Name": consumer, "name": consumer, **settings}
        key = write_meta(
            place,
            account.name,
            f"{name}/{consumer}",
            f"{name}.{consumer}",
            settings,
            stream.cipher,
        )
        if state is not None:
            body = encode_consumer(state, 1_000)
            (place / "o.dat").write_bytes(sealed(key, body))
    write_blocks(messages, account.name, name, stream)
    return directory


def write_blocks(directory: Path, account: str, name: str, stream: Written) -> None:
    chunks = [
        stream.messages[at : at + stream.per_block]
        for at in range(0, len(stream.messages), stream.per_block)
    ] or [()]
    for number, chunk in enumerate(chunks, 1):
        key = hash_key(f"{name}-{number}")
        body = b"".join(
            record(Message(each.sequence, b"", os.urandom(9), b"", each.time_ns), key, ERASED)
            if each.sequence in stream.erased
            else record(each, key)
            for each in chunk
        )
        if number == len(chunks):
            body += b"".join(
                record(Message(each, b""), key, TOMBSTONE) for each in stream.tombstones
            )
            body += stream.torn
        if stream.is_compressed and number < len(chunks):
            body = compressed(body)
        path = directory / f"{number}.blk"
        if stream.cipher is not None:
            file_key, sealed_key = new_key(account, f"{name}:{number}", stream.cipher)
            path.with_suffix(".key").write_bytes(sealed_key)
            body = file_key.apply(body)
        path.write_bytes(body)


def compressed(body: bytes) -> bytes:
    packer = FramePacker()
    frames = packer.begin() + packer.packing(body[:-8])()
    size, length = bytearray(), len(body)
    while length >= 0x80:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    size.append(length)
    return b"cmp\x01" + size + frames + body[-8:]


def write_meta(
    directory: Path,
    account: str,
    hashed: str,
    context: str,
    config: dict[str, Any],
    cipher: Cipher | None,
) -> FileKey | None:
    body, key = json.dumps({"Created": CREATED, **config}).encode(), None
    if cipher is not None:
        key, sealed_key = new_key(account, context, cipher)
        (directory / "meta.key").write_bytes(sealed_key)
    body = sealed(key, body)
    (directory / "meta.inf").write_bytes(body)
    (directory / "meta.sum").write_text(highway_hash(hash_key(hashed), body).hex())
    return key


def sealed(key: FileKey | None, body: bytes) -> bytes:
    if key is None:
        return body
    return seal(key.cipher, key.seed, os.urandom(NONCE_BYTES[key.cipher]), body)


def new_key(account: str, context: str, cipher: Cipher) -> tuple[FileKey, bytes]:
    seed, nonce = os.urandom(32), os.urandom(NONCE_BYTES[cipher])
    wrapping = hmac.digest(KEY, (account + context).encode(), "sha256")
    return FileKey(cipher, seed, nonce), seal(cipher, wrapping, nonce, seed)
