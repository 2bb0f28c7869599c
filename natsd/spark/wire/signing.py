"""Authentication with keys: the server's nonce, signed with the seed of an nkey or a .creds file.

    seed    S + a letter of its kind + base32(2 bytes of kinds, 32 bytes of ed25519 seed, CRC-16)
    .creds  --BEGIN NATS USER JWT-- … --END …, --BEGIN USER NKEY SEED-- … --END …

Source: https://docs.nats.io/using-nats/developer/connecting/creds; ADR-14 (user JWTs and nkeys).
"""

from __future__ import annotations

import base64
import binascii
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from natsd.spark.errors import ClientError

SEED_BYTES: Final = 32
PREFIX_SEED: Final = 18 << 3
_PART: Final = re.compile(r"-{3,}[^\n-]+-{3,}\s*\n\s*([\w\-.=]+)\s*\n-{3,}[^\n-]+-{3,}")


class BadKey(ClientError):
    """A file with a key or with credentials cannot be used."""


@dataclass(frozen=True)
class Seed:
    """The seed of an nkey: it can sign, and yields the public key."""

    kind: int
    secret: bytes = field(repr=False)

    def sign(self, nonce: str) -> str:
        """Return the signature of the nonce as the `sig` of CONNECT: base64url without padding."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = Ed25519PrivateKey.from_private_bytes(self.secret)
        return base64.urlsafe_b64encode(key.sign(nonce.encode())).rstrip(b"=").decode()

    @property
    def public(self) -> str:
        """The public nkey of the seed, as text."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = Ed25519PrivateKey.from_private_bytes(self.secret).public_key()
        raw = bytes([self.kind]) + key.public_bytes_raw()
        checked = raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")
        return base64.b32encode(checked).rstrip(b"=").decode()


def parse_seed(text: str, where: str) -> Seed:
    """Parse the text of a seed. `where` names the file in errors. Raises BadKey."""
    text = text.strip()
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except binascii.Error:
        raise BadKey(f"{where} holds no nkey seed") from None
    body, checksum = raw[:-2], raw[-2:]
    if (
        len(body) != 2 + SEED_BYTES
        or body[0] & 0xF8 != PREFIX_SEED
        or binascii.crc_hqx(body, 0).to_bytes(2, "little") != checksum
    ):
        raise BadKey(f"{where} holds no valid nkey seed")
    return Seed(kind=(body[0] & 7) << 5 | body[1] >> 3, secret=body[2:])


def read_seed(path: str) -> Seed:
    """Return the seed in the first line of the file that begins with S. Raises BadKey."""
    for line in _read(path).splitlines():
        if line.strip().startswith("S"):
            return parse_seed(line, path)
    raise BadKey(f"{path} holds no nkey seed")


def read_credentials(path: str) -> tuple[str, Seed]:
    """Return the JWT and the seed of a `.creds` file. Raises BadKey."""
    parts = _PART.findall(_read(path))
    if len(parts) < 2:
        raise BadKey(f"{path} holds no credentials: a user JWT and a seed are expected")
    return parts[0], parse_seed(parts[1], path)


def _read(path: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        # Executors look up a relative path in their own working directories.
        where = f"{Path(path).expanduser().absolute()} cannot be read on {socket.gethostname()}"
        raise BadKey(f"{where}: {reason}") from None
