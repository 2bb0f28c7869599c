"""A JWT as text: three parts of base64url, of which an nkey signed the first two.

    header . claims . signature          {"typ":"JWT","alg":"ed25519-nkey"} . {"iss":"O…", …} . 64 B

- Version 2 signs `header.claims`; version 1 (algorithm `ed25519`) signs `claims` only.
- A token has at most `TOKEN_BYTES_MAX`, and its JSON nests at most `NESTING_MAX` deep. Every other
  text raises BadToken, whatever it contains.
- As in Go, names of fields match in any case, `null` is the same as a missing field, and the last
  one of equal names counts. So a token means the same here and in a nats-server.

Source: nats-io/jwt v2 (decoder.go, header.go, claims.go).
"""

import base64
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from natsd.auth.nkeys import KeyPair, verify

TOKEN_BYTES_MAX: Final = 1 << 20
NESTING_MAX: Final = 32
ALGORITHM: Final = "ed25519-nkey"
OLD_ALGORITHM: Final = "ed25519"
_HEADER: Final = {"typ": "JWT", "alg": ALGORITHM}
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*")
_DECORATED: Final = re.compile(
    r"\s*-{3,}[^\n-]{1,100}-{3,}\s*\n\s*([\w.=-]+)\s*\n\s*-{3,}[^\n-]{1,100}-{3,}"
)
_FREE_NAMES: Final = frozenset({"mappings", "revocations", "tiered_limits"})
"""Objects whose names are data: they keep their case."""

Fields = dict[str, Any]


class BadToken(ValueError):
    """A text is no JWT, its signature is wrong, or its claims are of another kind."""


class Token(NamedTuple):
    """The parts of a JWT; the signature is not verified yet."""

    text: str
    algorithm: str  # as it is spelled in the header
    fields: Fields
    signature: bytes

    def verify(self, issuer: str, *, is_old: bool) -> None:
        """Check that `issuer` signed the token. Raises BadToken."""
        signed = self.text.rpartition(".")[0]
        if is_old:
            signed = signed.partition(".")[2]
        if not verify(issuer, signed.encode(), self.signature):
            version = "V1" if is_old else "V2"
            raise BadToken(f"claim failed {version} signature verification")


def parse(text: str) -> Token:
    """Split a JWT and decode its parts. Raises BadToken."""
    if len(text) > TOKEN_BYTES_MAX:
        raise BadToken(
            f"token size {len(text)} exceeds maximum of {TOKEN_BYTES_MAX} bytes: token too large"
        )
    text = text.strip()
    chunks = text.split(".")
    if len(chunks) != 3:
        raise BadToken("expected 3 chunks")
    header = _object(_decode(chunks[0]))
    kind, algorithm = header.get("typ", ""), header.get("alg", "")
    if not isinstance(kind, str) or kind.upper() != "JWT":
        raise BadToken(f"not supported type {_quoted(kind)}")
    if not isinstance(algorithm, str) or algorithm.lower() not in {ALGORITHM, OLD_ALGORITHM}:
        raise BadToken(f"unexpected {_quoted(algorithm)} algorithm")
    return Token(text, algorithm, _object(_decode(chunks[1])), _decode(chunks[2]))


def encode(fields: Mapping[str, Any], issuer: KeyPair) -> str:
    """Return a JWT of version 2 with these claims, which `issuer` signs."""
    signed = f"{_encode(msgspec.json.encode(_HEADER))}.{_encode(msgspec.json.encode(fields))}"
    return f"{signed}.{_encode(issuer.sign(signed.encode()))}"


def undecorated(text: str) -> str:
    """Return the JWT in the text of a file, which may frame it by lines of dashes."""
    found = _DECORATED.search(text[: 2 * TOKEN_BYTES_MAX])
    return found.group(1) if found else text.strip()


def _decode(part: str) -> bytes:
    if not _BASE64URL.fullmatch(part) or len(part) % 4 == 1:
        raise BadToken("a part of the token is not base64url")
    return base64.b64decode(part + "=" * (-len(part) % 4), b"-_")


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _object(data: bytes) -> Fields:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadToken(f"the claims are not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadToken("the claims are not a JSON object")
    plain: Fields = _plain(value, NESTING_MAX, are_names_free=False)
    return plain


def _plain(value: Any, depth: int, *, are_names_free: bool) -> Any:
    """Return a JSON value without nulls in objects, and with the names of fields in lower case."""
    if isinstance(value, dict):
        if depth == 0:
            raise BadToken(f"the claims nest more than {NESTING_MAX} levels deep")
        plain = {}
        for name, inner in value.items():
            if inner is not None:
                known = name if are_names_free else name.lower()
                is_map = not are_names_free and known in _FREE_NAMES
                plain[known] = _plain(inner, depth - 1, are_names_free=is_map)
        return plain
    if isinstance(value, list):
        if depth == 0:
            raise BadToken(f"the claims nest more than {NESTING_MAX} levels deep")
        return [_plain(inner, depth - 1, are_names_free=False) for inner in value]
    return value


def _quoted(value: object) -> str:
    return f'"{str(value)[:100]}"'
