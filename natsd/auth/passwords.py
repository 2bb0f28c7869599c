"""Comparison of passwords and tokens with configured ones, which may be bcrypt hashes.

- Plain texts are compared by a keyed hash of both, so that the time depends on neither.
- A bcrypt hash takes 50 ms and more, on purpose. It is computed in a thread, at most
  `threads_max` at once. A thread that nobody waits for any more still counts. The addresses of
  clients take turns (hash_turns.py); an answer for which too many wait is wrong at once.
- A right answer is remembered by a keyed hash of both texts, KNOWN_MAX at most, so that a client
  that connects again costs microseconds. The key is random and in memory only.
- A wrong answer always takes as long as the slowest hash that is configured: neither a wrong name,
  a wrong plain password, nor a wrong password of a user with a cheaper hash is faster.

Source: nats-server's `comparePasswords` and `isBcrypt` (server/auth.go).
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

from natsd.auth.hash_turns import HashTurns

KNOWN_MAX: Final = 16_384
"""Right answers that are remembered."""
THREADS_MAX: Final = 4
BCRYPT_BYTES_MAX: Final = 72
"""Bytes of a password that bcrypt uses."""
_BCRYPT: Final = re.compile(r"\$2[abxy]\$(\d\d)\$")
_DIGEST_BYTES: Final = 16
_SALT_AND_HASH: Final = "." * 52 + "O"


def bcrypt_cost(stored: str) -> int:
    """Return the cost of a bcrypt hash; 0: the text is a plain password."""
    if not stored.startswith("$2"):
        return 0
    found = _BCRYPT.match(stored)
    return 0 if found is None else int(found[1])


class Passwords:
    """Compares given passwords with stored ones."""

    def __init__(self, threads_max: int = 0) -> None:
        """Compute at most `threads_max` hashes at once; 0: as many as there are cores, up to 4."""
        self._key = os.urandom(32)
        self._known: dict[bytes, None] = {}
        self._cost = 0  # of the slowest hash that is configured; 0: there is none
        self._turns = HashTurns(threads_max or min(THREADS_MAX, os.cpu_count() or 1))

    def expect(self, stored: Iterable[str]) -> None:
        """Make wrong answers take as long as the slowest of these stored passwords."""
        self._cost = max(map(bcrypt_cost, stored), default=0)

    def check(self, stored: str, given: str, ip: str) -> bool | Awaitable[bool]:
        """Return whether the password that a client gave is right, or an awaitable of that."""
        if bcrypt_cost(stored):
            proof = self._digest(stored, given)
            return True if proof in self._known else self._check_hash(stored, given, proof, ip)
        return self.same(stored, given) or self.refuse(given, ip)

    def same(self, one: str, other: str) -> bool:
        """Return whether two texts are equal, in a time that depends on neither."""
        return compare_digest(self._digest(one), self._digest(other))

    def refuse(self, given: str, ip: str) -> bool | Awaitable[bool]:
        """Return False, or an awaitable of it, after the work that a wrong password takes."""
        if self._cost:
            return self._check_decoy(given, ip)
        self.same(given, "")
        return False

    async def _check_hash(self, stored: str, given: str, proof: bytes, ip: str) -> bool:
        if not await self._turns.acquire(ip):
            return False
        if proof in self._known:  # meanwhile another client gave the same password
            self._turns.release()
            return True
        if not await self._in_thread(stored, given):
            return False
        if len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[proof] = None
        return True

    async def _check_decoy(self, given: str, ip: str) -> bool:
        if await self._turns.acquire(ip):
            await self._in_thread(_decoy(self._cost), given)
        return False

    async def _in_thread(self, stored: str, given: str) -> bool:
        """Return whether a password has a bcrypt hash; a slot is free again when the thread ends.

        A hash of a cost takes 2^cost steps. A wrong password with a cheaper hash than the slowest
        one is hashed with each cost from its own on below that, which makes up the difference.
        """
        from threading import Thread

        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bool] = loop.create_future()
        costs = range(bcrypt_cost(stored), self._cost)

        def done(is_right: bool) -> None:
            if not answer.done():
                answer.set_result(is_right)  # is remembered before the next turn begins
            self._turns.release()

        def run() -> None:
            is_right = _matches_hash(stored, given)
            if not is_right:
                for cost in costs:
                    _matches_hash(_decoy(cost), given)
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(done, is_right)

        try:
            Thread(target=run, name="natsd-password", daemon=True).start()
        except RuntimeError:  # the system has no more threads
            self._turns.release()
            raise
        return await answer

    def _digest(self, *texts: str) -> bytes:
        data = b""
        for text in texts:
            encoded = text.encode("utf-8", "surrogatepass")
            data += len(encoded).to_bytes(8, "little") + encoded
        return blake2b(data, key=self._key, digest_size=_DIGEST_BYTES).digest()


def _decoy(cost: int) -> str:
    """Return a hash that no password has."""
    return f"$2b${cost:02}${_SALT_AND_HASH}"


def _matches_hash(stored: str, given: str) -> bool:
    import bcrypt

    try:
        password = given.encode("utf-8", "surrogatepass")[:BCRYPT_BYTES_MAX]
        return bcrypt.checkpw(password, stored.encode())
    except ValueError:  # the stored text only looks like a hash
        return False
