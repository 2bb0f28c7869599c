"""The short hash by which nats-server names accounts in subjects, and consumers of sources."""

import functools
import hashlib
from typing import Final

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@functools.lru_cache(maxsize=128)  # each consumer asks for that of its account
def short_hash(data: bytes) -> str:
    """Return eight letters and digits, as nats-server's `getHash`: acks name accounts so."""
    digest = hashlib.sha256(data).digest()
    return "".join(_DIGITS[byte % len(_DIGITS)] for byte in digest[:8])
