"""The claims of JWTs, as monitoring shows them; their signatures were checked at the login.

A JWT is three texts in base64url with dots between them; the second one holds the claims.
"""

import base64
import binascii
from typing import Any, Final

import msgspec.json

PARTS: Final = 3


def claims_of(jwt: str) -> dict[str, Any]:
    """Return the claims of a JWT; empty if the text is none."""
    parts = jwt.split(".")
    if len(parts) != PARTS:
        return {}
    text = parts[1]
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError, RecursionError, msgspec.DecodeError):
        return {}
    return claims if isinstance(claims, dict) else {}


def nats_claims_of(claims: dict[str, Any]) -> dict[str, Any]:
    """Return the member `nats` of claims; empty if there is none."""
    nats = claims.get("nats")
    return nats if isinstance(nats, dict) else {}
