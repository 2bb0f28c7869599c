"""Public nkeys in configurations: whether a text is a well-formed one.

    base32( prefix byte │ 32 bytes of the key │ CRC-16 of the bytes before, low byte first )

The prefix byte makes the first letter of the text: `A` for accounts, `U` for users.
Source: nkeys' `IsValidPublicKey` and its CRC (crc16.go, strkey.go).
"""

from typing import Final

ACCOUNT: Final = "A"
USER: Final = "U"
OPERATOR: Final = "O"
CURVE: Final = "X"
KINDS: Final = "ACNOUX"
"""First letters of public keys: account, cluster, server, operator, user, curve."""

_TEXT_LENGTH: Final = 56
_SEED_LENGTH: Final = 58


def is_public_key(text: str, kinds: str = KINDS) -> bool:
    """Return whether the text is a public key that starts with one of the letters in `kinds`."""
    if len(text) != _TEXT_LENGTH or text[0] not in kinds:
        return False
    return _has_checksum(text)


def is_user_seed(text: str) -> bool:
    """Return whether the text is the seed of a user's key, which has two prefix bytes."""
    return len(text) == _SEED_LENGTH and text.startswith("SU") and _has_checksum(text + "======")


def _has_checksum(text: str) -> bool:
    """Return whether base32 text ends in the right CRC-16."""
    import base64
    import binascii

    try:
        raw = base64.b32decode(text)
    except ValueError:
        return False
    return binascii.crc_hqx(raw[:-2], 0) == int.from_bytes(raw[-2:], "little")
