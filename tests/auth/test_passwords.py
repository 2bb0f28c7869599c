"""Comparison of passwords: right and wrong ones, threads, and the work that each answer takes."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable

import pytest

from natsd.auth import passwords
from natsd.auth.passwords import Passwords
from tests.waiting import eventually_within

IP = "10.0.0.1"
HASH = "$2b$04$CK9nwGWAO3J7QHdpw5nv2.9VvQneF/43RyZxy8rJwNi6n8OZSYg5K"  # of s3cr3t


async def outcome(answer: bool | Awaitable[bool]) -> bool:
    return answer if isinstance(answer, bool) else await answer


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the costs of the hashes that are computed."""
    costs: list[str] = []
    compute = passwords._matches_hash

    def note(stored: str, given: str) -> bool:
        costs.append(stored[:7])
        return compute(stored, given)

    monkeypatch.setattr(passwords, "_matches_hash", note)
    return costs


@pytest.mark.parametrize(
    ("stored", "given", "is_right"),
    [
        ("plain", "plain", True),
        ("plain", "plain ", False),
        ("", "", True),
        ("", "x", False),
        ("é", "é", True),
        (HASH, "s3cr3t", True),
        (HASH, "s3cr3", False),
        (HASH, HASH, False),
        (HASH, "s3cr3t" + "x" * 100, False),
        ("$2b$04$short", "$2b$04$short", False),
        ("$2z$04$other", "$2z$04$other", True),
    ],
)
async def test_answers(stored: str, given: str, is_right: bool) -> None:
    checked = Passwords()
    checked.expect([stored])
    for _ in range(2):
        assert await outcome(checked.check(stored, given, IP)) is is_right
    assert await outcome(checked.refuse(given, IP)) is False


async def test_bcrypt_uses_72_bytes(hashed: list[str]) -> None:
    import bcrypt

    stored = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode()
    assert await outcome(Passwords().check(stored, "x" * 100, IP))


async def test_a_right_answer_is_remembered_for_its_hash_only(hashed: list[str]) -> None:
    checked = Passwords()
    assert await outcome(checked.check(HASH, "s3cr3t", IP))
    assert checked.check(HASH, "s3cr3t", IP) is True
    assert hashed == ["$2b$04$"]
    assert not await outcome(checked.check(HASH.replace("8", "9"), "s3cr3t", IP))
    assert not await outcome(checked.check(HASH, "s3cr3", IP))
    assert len(hashed) == 3


async def test_wrong_answers_take_equal_work(hashed: list[str]) -> None:
    """Unknown name, wrong plain password, wrong hashed password: one hash of the highest cost."""
    checked = Passwords()
    checked.expect(["plain", HASH.replace("$04$", "$05$")])
    for answer in (
        checked.refuse("guess", IP),
        checked.check("plain", "guess", IP),
        checked.check(HASH.replace("$04$", "$05$"), "guess", IP),
    ):
        assert inspect.isawaitable(answer)
        hashed.clear()
        assert not await answer
        assert hashed == ["$2b$05$"]


async def test_a_cheaper_hash_makes_up_for_the_difference(hashed: list[str]) -> None:
    """A wrong password takes 2^7 steps, as with an unknown name: 2^4 and 2^4 + 2^5 + 2^6."""
    checked = Passwords()
    checked.expect([HASH, HASH.replace("$04$", "$07$")])
    assert not await outcome(checked.check(HASH, "guess", IP))
    assert hashed == ["$2b$04$", "$2b$04$", "$2b$05$", "$2b$06$"]
    hashed.clear()
    assert await outcome(checked.check(HASH, "s3cr3t", IP))
    assert hashed == ["$2b$04$"]


async def test_one_hash_answers_all_who_gave_the_same_password(hashed: list[str]) -> None:
    checked = Passwords(threads_max=1)
    answers = [outcome(checked.check(HASH, "s3cr3t", IP)) for _ in range(20)]
    assert await asyncio.gather(*answers) == [True] * 20
    assert hashed == ["$2b$04$"]


async def test_without_hashes_nothing_is_awaited() -> None:
    checked = Passwords()
    checked.expect(["plain", "other"])
    assert checked.check("plain", "guess", IP) is False
    assert checked.refuse("guess", IP) is False


async def test_hashes_at_once_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if nobody waits for them any more."""
    running, most, proceed = 0, 0, threading.Event()
    lock = threading.Lock()

    def slow(_stored: str, _given: str) -> bool:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        proceed.wait(30)
        with lock:
            running -= 1
        return True

    monkeypatch.setattr(passwords, "_matches_hash", slow)
    checked = Passwords(threads_max=2)
    checks = [asyncio.ensure_future(outcome(checked.check(HASH, str(n), IP))) for n in range(20)]
    async with asyncio.timeout(30):
        await eventually_within(lambda: most == 2)
        for given_up in checks[:10]:
            given_up.cancel()
        proceed.set()
        assert await asyncio.gather(*checks[10:]) == [True] * 10
    assert most == 2


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "KNOWN_MAX", 3)
    monkeypatch.setattr(passwords, "_matches_hash", lambda _stored, _given: True)
    checked = Passwords()
    for number in range(10):
        assert await outcome(checked.check(HASH, str(number), IP))
    assert checked.check(HASH, "9", IP) is True
    assert inspect.isawaitable(again := checked.check(HASH, "0", IP))
    assert await again
