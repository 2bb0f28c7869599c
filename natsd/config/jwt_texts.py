"""JWTs in configurations: texts of three parts, or the names of files that hold one.

Signatures and claims are not looked at here.
Source: nats-server's `readOperatorJWT` (server/jwt.go).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from natsd.config.public_keys import Kind, is_public
from natsd.config.settings import NamedSections, OptionsError, read_items, read_named

_JWT: Final = re.compile(r"eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_DECORATED: Final = re.compile(r"-{3,}[^\n]*-{3,}\r?\n(.+?)\r?\n\s*-{3,}[^\n]*-{3,}", re.DOTALL)
JWT_FILE_BYTES_MAX: Final = 1 << 20


def is_jwt(text: str) -> bool:
    """Return whether the text looks like a JWT."""
    return _JWT.fullmatch(text) is not None


def read_operators(given: object) -> tuple[str, ...]:
    """Return the JWTs of operators, from texts that are JWTs or name files. Raises OptionsError."""
    return read_items([given] if isinstance(given, str) else given, _read_operator, "JWTs")


def _read_operator(given: object) -> str:
    if not isinstance(given, str):
        raise OptionsError("must be a JWT, or the name of a file that holds one")
    if is_jwt(given):
        return given
    try:
        with Path(given).open("rb") as file:
            content = file.read(JWT_FILE_BYTES_MAX).decode()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OptionsError(f"error parsing operator JWT: open {given}: {reason}") from None
    except UnicodeDecodeError:
        raise OptionsError(f"error parsing operator JWT: {given} is not text") from None
    found = _DECORATED.search(content)
    token = (found[1] if found else content).strip()
    if not is_jwt(token):
        raise OptionsError(f"error parsing operator JWT: {given} holds no JWT")
    return token


def read_preload(given: object) -> NamedSections[str]:
    """Return JWTs by account. Raises OptionsError."""
    if not isinstance(given, Mapping):
        raise OptionsError("preload should be a map of account_public_key:account_jwt")
    for key in given:
        if not is_public(str(key), Kind.ACCOUNT) and not getattr(key, "is_variable", False):
            raise OptionsError(f'"{key}" is not the public key of an account').at(key)
    return read_named(given, _read_account_jwt, "JWTs")


def _read_account_jwt(given: object) -> str:
    if not isinstance(given, str) or not is_jwt(given):
        raise OptionsError("invalid account JWT")
    return given
