"""Comparison of passwords and tokens with configured ones, which may be bcrypt hashes.

- Plain texts are compared by a keyed hash of both, so that the time depends on neither.
- A bcrypt hash takes 50 ms and more, on purpose. It is computed in a thread, at most
  `threads_max` at once. A thread that nobody waits for any more still counts.
- A right answer is remembered by a keyed hash of both texts, KNOWN_MAX at most, so that a client
  that connects again costs microseconds. The key is random and in memory only.
- A wrong answer always takes as long as the slowest hash that is configured: neither a wrong name
  nor a wrong plain password is faster than a wrong password of a user with a hash.

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
    found = _BCRYPT.match(stored)
    return 0 if found is None else int(found[1])


class Passwords:
    """Compares given passwords with stored ones."""

    def __init__(self, threads_max: int = 0) -> None:
        """Compute at most `threads_max` hashes at once; 0: as many as there are cores, up to 4."""
        self._key = os.urandom(32)
        self._known: dict[bytes, None] = {}
        self._decoy = ""
        self._slots = asyncio.Semaphore(threads_max or min(THREADS_MAX, os.cpu_count() or 1))

    def expect(self, stored: Iterable[str]) -> None:
        """Make wrong answers take as long as the slowest of these stored passwords."""
        cost = max(map(bcrypt_cost, stored), default=0)
        self._decoy = f"$2b${cost:02}${_SALT_AND_HASH}" if cost else ""

    def check(self, stored: str, given: str) -> bool | Awaitable[bool]:
        """Return whether the given password is right, or an awaitable of that."""
        if bcrypt_cost(stored):
            proof = self._digest(stored, given)
            return True if proof in self._known else self._check_hash(stored, given, proof)
        return self.same(stored, given) or self.refuse(given)

    def same(self, one: str, other: str) -> bool:
        """Return whether two texts are equal, in a time that depends on neither."""
        return compare_digest(self._digest(one), self._digest(other))

    def refuse(self, given: str) -> bool | Awaitable[bool]:
        """Return False, or an awaitable of it, after the work that a wrong password takes."""
        if self._decoy:
            return self._check_decoy(given)
        self.same(given, "")
        return False

    async def _check_hash(self, stored: str, given: str, proof: bytes) -> bool:
        if not await self._in_thread(stored, given):
            return False
        if len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[proof] = None
        return True

    async def _check_decoy(self, given: str) -> bool:
        await self._in_thread(self._decoy, given)
        return False

    async def _in_thread(self, stored: str, given: str) -> bool:
        """Return whether a password has a bcrypt hash; the slot is held until the thread ends."""
        from threading import Thread

        loop = asyncio.get_running_loop()
        await self._slots.acquire()
        answer: asyncio.Future[bool] = loop.create_future()

        def done(is_right: bool) -> None:
            self._slots.release()
            if not answer.done():
                answer.set_result(is_right)

        def run() -> None:
            is_right = _matches_hash(stored, given)
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(done, is_right)

        try:
            Thread(target=run, name="natsd-password", daemon=True).start()
        except RuntimeError:  # the system has no more threads
            self._slots.release()
            raise
        return await answer

    def _digest(self, *texts: str) -> bytes:
        digest = blake2b(key=self._key, digest_size=_DIGEST_BYTES)
        for text in texts:
            data = text.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little") + data)
        return digest.digest()


def _matches_hash(stored: str, given: str) -> bool:
    import bcrypt

    try:
        password = given.encode("utf-8", "surrogatepass")[:BCRYPT_BYTES_MAX]
        return bcrypt.checkpw(password, stored.encode())
    except ValueError:  # the stored text only looks like a hash
        return False
