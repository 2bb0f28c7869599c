"""Public nkeys for tests: well-formed, of nobody."""

from natsd.config.public_keys import KEY_BYTES, Kind, encode_public

LETTERS = {"A": Kind.ACCOUNT, "N": Kind.SERVER, "O": Kind.OPERATOR, "U": Kind.USER}


def public_key(letter: str) -> str:
    """Return a public key that starts with this letter."""
    return encode_public(LETTERS[letter], bytes([1]) * KEY_BYTES)


JWT = "eyJhbGciOiJlZDI1NTE5In0.eyJzdWIiOiJ4In0.c2ln"
