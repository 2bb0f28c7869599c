"""A directory of account JWTs: one file for each account.

    <directory>/<account>.jwt              the JWT as text
    <directory>/<account>.jwt.deleted      that of a deleted account
    <directory>/<account>.jwt.<n>.new      being written; left by a process that was killed

- A file is replaced as a whole: after a crash there is the old JWT or the new one, and what `save`
  returned from is on disk.
- A file that is no JWT of the account in its name is reported once, by name, and not used.
- At most `limit` JWTs are kept. Beyond that a cache drops the one that was used least recently, and
  a full directory refuses.
- With `ttl_s` a JWT is dropped when it was not used for so long; without, when it has expired.
- `digest` is the exclusive or of the SHA-256 of all JWTs. Servers compare theirs to learn that they
  have the same; its value is that of a nats-server with the same JWTs.

Everything here blocks, and raises OSError. One thread at a time may use a directory.

Source: nats-server's `DirJWTStore` (server/dirstore.go).
"""

import contextlib
import hashlib
import itertools
import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from natsd.auth.jwt.decode import GenericClaims, decode_generic
from natsd.auth.jwt.token import TOKEN_BYTES_MAX, BadToken
from natsd.auth.resolver.resolver import NotResolved
from natsd.config.public_keys import Kind, is_public

SUFFIX: Final = ".jwt"
DELETED: Final = ".deleted"
UNFINISHED: Final = ".new"
DIGEST_BYTES: Final = 32
DIRECTORY_MODE: Final = 0o750
FILE_MODE: Final = 0o640
NEVER_S: Final = float("inf")

_logger = logging.getLogger("natsd.auth")


class JwtStoreFull(NotResolved):
    """A directory that is no cache has as many JWTs as it may."""


@dataclass(slots=True)
class _Known:
    """A JWT whose file is in the directory."""

    digest: int
    expires_s: float  # when the file is dropped, Unix time


class JwtDirectory:
    """The JWTs in one directory."""

    def __init__(
        self,
        path: Path,
        now_s: Callable[[], float],
        *,
        limit: int = 0,
        is_cache: bool = False,
        ttl_s: float = 0,
    ) -> None:
        """Keep JWTs in the directory `path`; a limit or a time of 0: there is none."""
        self.path = path
        self._now_s = now_s
        self._limit = limit
        self._is_cache = is_cache
        self._ttl_s = ttl_s
        self._known: OrderedDict[str, _Known] = OrderedDict()  # least recently used first
        self._digest = 0
        self._numbers = itertools.count()

    @property
    def digest(self) -> bytes:
        """The exclusive or of the SHA-256 of all JWTs."""
        return self._digest.to_bytes(DIGEST_BYTES, "big")

    @property
    def names(self) -> tuple[str, ...]:
        """The accounts whose JWTs are here."""
        return tuple(self._known)

    def open(self) -> None:
        """Make the directory if it is missing, and read it."""
        self.path.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        for unfinished in self.path.glob(f"*{SUFFIX}.*{UNFINISHED}"):
            unfinished.unlink(missing_ok=True)
        self.reload()

    def reload(self) -> list[str]:
        """Read the directory again; return the accounts whose JWTs are new or changed."""
        before, self._known, self._digest = self._known, OrderedDict(), 0
        changed = []
        for file in sorted(self.path.glob(f"*{SUFFIX}")):
            jwt = self._read_known(file)
            if jwt is not None:
                name = file.name.removesuffix(SUFFIX)
                self._track(name, jwt)
                if name not in before or before[name].digest != self._known[name].digest:
                    changed.append(name)
        return changed

    def load(self, name: str) -> str | None:
        """Return the JWT of an account; None: there is none."""
        if name not in self._known:
            return None
        try:
            jwt = self._file(name).read_text("ascii", "replace")
        except FileNotFoundError:
            self._forget(name)
            return None
        known = self._known[name]
        if self._ttl_s:
            known.expires_s = self._now_s() + self._ttl_s
        self._known.move_to_end(name)
        return jwt

    def save(self, name: str, jwt: str) -> bool:
        """Store a JWT; return whether it differs from the one before.

        Raises BadToken if it is not one of that account, and JwtStoreFull.
        """
        assert is_public(name, Kind.ACCOUNT)
        jwt = jwt.strip()
        if decode_generic(jwt).subject != name:
            raise BadToken("jwt subject nkey and provided nkey do not match")
        known = self._known.get(name)
        if known is not None and known.digest == _digest_of(jwt):
            self._known.move_to_end(name)
            return False
        if known is None and self._limit and len(self._known) >= self._limit:
            if not self._is_cache:
                raise JwtStoreFull("jwt store is full")
            self._remove(next(iter(self._known)))
        self._write(self._file(name), jwt)
        self._track(name, jwt)
        return True

    def save_if_newer(self, name: str, jwt: str) -> bool:
        """Store a JWT unless the present one was issued later; return whether it changed.

        Raises BadToken and JwtStoreFull.
        """
        present = self.load(name)
        if present is not None:
            new, old = decode_generic(jwt), decode_generic(present)
            if old.id == new.id or old.issued_at > new.issued_at:
                return False
        return self.save(name, jwt)

    def delete(self, name: str, *, keep: bool) -> bool:
        """Delete a JWT, or rename its file if `keep`; return whether there was one."""
        if name not in self._known:
            return False
        self._remove(name, keep=keep)
        return True

    def drop_expired(self) -> list[str]:
        """Drop the JWTs whose time is over; return their accounts."""
        now_s = self._now_s()
        expired = [name for name, known in self._known.items() if known.expires_s <= now_s]
        for name in expired:
            self._remove(name)
        return expired

    def valid(self) -> Iterable[tuple[str, str]]:
        """Yield all accounts with their JWTs, except those that have expired."""
        now_s = self._now_s()
        for name in self.names:
            file = self._file(name)
            with contextlib.suppress(FileNotFoundError, BadToken):
                jwt = file.read_text("ascii", "replace")
                if not 0 < decode_generic(jwt).expires < now_s:
                    yield name, jwt

    def _file(self, name: str) -> Path:
        return self.path / f"{name}{SUFFIX}"

    def _read_known(self, file: Path) -> str | None:
        """Return the JWT in a file; None: it is reported, because it is of no use."""
        name = file.name.removesuffix(SUFFIX)
        try:
            if not is_public(name, Kind.ACCOUNT):
                raise BadToken("its name is no public key of an account")
            if file.stat().st_size > TOKEN_BYTES_MAX:
                raise BadToken("it is too long")
            jwt = file.read_text("ascii", "replace")
            if decode_generic(jwt).subject != name:
                raise BadToken("the JWT in it is that of another account")
        except (BadToken, OSError) as error:
            _logger.error("The file %s is not used: %s", file, error)
            return None
        return jwt

    def _track(self, name: str, jwt: str) -> None:
        self._forget(name)
        digest = _digest_of(jwt)
        self._digest ^= digest
        self._known[name] = _Known(digest, self._expiry(decode_generic(jwt)))

    def _expiry(self, claims: GenericClaims) -> float:
        if self._ttl_s:
            return self._now_s() + self._ttl_s
        return claims.expires or NEVER_S

    def _forget(self, name: str) -> None:
        known = self._known.pop(name, None)
        if known is not None:
            self._digest ^= known.digest

    def _remove(self, name: str, *, keep: bool = False) -> None:
        file = self._file(name)
        with contextlib.suppress(FileNotFoundError):
            if keep:
                file.rename(file.with_name(file.name + DELETED))
            else:
                file.unlink()
        _sync_directory(self.path)
        self._forget(name)

    def _write(self, file: Path, jwt: str) -> None:
        """Replace a file as a whole; on return it is on disk."""
        new = file.with_name(f"{file.name}.{next(self._numbers)}{UNFINISHED}")
        try:
            with open(new, "w", encoding="ascii", opener=_create) as stream:
                stream.write(jwt)
                stream.flush()
                os.fsync(stream.fileno())
            new.replace(file)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        _sync_directory(self.path)


def _create(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def _digest_of(jwt: str) -> int:
    return int.from_bytes(hashlib.sha256(jwt.encode()).digest(), "big")


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
