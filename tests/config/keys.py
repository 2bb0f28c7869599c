"""Public nkeys for tests: well-formed, of nobody."""

import base64
import binascii

PREFIX = {"A": 0, "C": 2, "N": 13, "O": 14, "U": 20, "X": 23}


def public_key(kind: str, seed: int = 1) -> str:
    """Return a public key that starts with the letter `kind`."""
    raw = bytes([PREFIX[kind] << 3]) + bytes([seed]) * 32
    return base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode()


JWT = "eyJhbGciOiJlZDI1NTE5In0.eyJzdWIiOiJ4In0.c2ln"
