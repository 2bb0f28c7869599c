"""A directory of account JWTs (nats-server: DirJWTStore)."""

import hashlib
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from natsd.auth.jwt.token import BadToken
from natsd.auth.resolver.jwt_directory import JwtDirectory, JwtStoreFull
from natsd.testing.jwts import ISSUED_AT, Operator
from tests.auth.fakes import NOW_S

OPERATOR = Operator()
A, B, C = (OPERATOR.account(name) for name in "ABC")


class Clock:
    def __init__(self) -> None:
        self.now_s = NOW_S

    def __call__(self) -> float:
        return self.now_s


def directory(path: Path, clock: Clock | None = None, **settings: Any) -> JwtDirectory:
    made = JwtDirectory(path / "jwt", clock or Clock(), **settings)
    made.open()
    return made


def digest(*jwts: str) -> bytes:
    value = 0
    for jwt in jwts:
        value ^= int.from_bytes(hashlib.sha256(jwt.encode()).digest(), "big")
    return value.to_bytes(32, "big")


def test_what_is_saved_is_there_after_a_restart(tmp_path: Path) -> None:
    made = directory(tmp_path)
    assert made.save(A.name, A.jwt)
    assert not made.save(A.name, A.jwt)
    assert made.save(B.name, B.jwt)
    assert (tmp_path / "jwt" / f"{A.name}.jwt").read_text() == A.jwt
    again = directory(tmp_path)
    assert again.load(A.name) == A.jwt
    assert again.load(C.name) is None
    assert sorted(again.names) == sorted([A.name, B.name])
    assert again.digest == made.digest == digest(A.jwt, B.jwt)


def test_a_changed_jwt_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    made = directory(tmp_path)
    made.save(A.name, A.jwt)
    changed = OPERATOR.account("A", limits={"conn": 1}).jwt
    assert made.save(A.name, changed)
    assert made.load(A.name) == changed
    assert made.digest == digest(changed)


@pytest.mark.parametrize("jwt", ["", "x", "a.b.c", B.jwt, A.jwt[:-5]])
def test_only_a_jwt_of_the_account_is_saved(tmp_path: Path, jwt: str) -> None:
    made = directory(tmp_path)
    with pytest.raises(BadToken):
        made.save(A.name, jwt)
    assert os.listdir(tmp_path / "jwt") == []


def test_bad_files_are_named_and_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "jwt"
    directory(tmp_path).save(A.name, A.jwt)
    bad = {f"{B.name}.jwt": "torn", f"{C.name}.jwt": A.jwt, "notes.jwt": A.jwt}
    for name, content in bad.items():
        (path / name).write_text(content)
    (path / f"{B.name}.jwt.0.new").write_text("half")
    (path / "other.txt").write_text("kept")
    caplog.set_level(logging.ERROR)
    assert directory(tmp_path).names == (A.name,)
    for name in bad:
        assert sum(name in line for line in caplog.messages) == 1
        assert (path / name).exists()
    assert not (path / f"{B.name}.jwt.0.new").exists()
    assert (path / "other.txt").exists()


def test_a_failed_write_leaves_the_old_jwt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = directory(tmp_path)
    made.save(A.name, A.jwt)

    def no_space(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        made.save(A.name, OPERATOR.account("A", limits={"conn": 1}).jwt)
    monkeypatch.undo()
    assert made.load(A.name) == A.jwt
    assert os.listdir(tmp_path / "jwt") == [f"{A.name}.jwt"]


def test_a_full_directory_refuses(tmp_path: Path) -> None:
    made = directory(tmp_path, limit=1)
    made.save(A.name, A.jwt)
    with pytest.raises(JwtStoreFull, match="jwt store is full"):
        made.save(B.name, B.jwt)
    assert made.save(A.name, OPERATOR.account("A", limits={"conn": 1}).jwt)


def test_a_full_cache_drops_what_was_used_least_recently(tmp_path: Path) -> None:
    made = directory(tmp_path, limit=2, is_cache=True)
    made.save(A.name, A.jwt)
    made.save(B.name, B.jwt)
    made.load(A.name)
    made.save(C.name, C.jwt)
    assert sorted(made.names) == sorted([A.name, C.name])
    assert not (tmp_path / "jwt" / f"{B.name}.jwt").exists()


def test_a_cache_drops_what_was_not_used_for_long(tmp_path: Path) -> None:
    clock = Clock()
    made = directory(tmp_path, clock, is_cache=True, ttl_s=10)
    made.save(A.name, A.jwt)
    made.save(B.name, B.jwt)
    clock.now_s += 6
    made.load(A.name)
    clock.now_s += 6
    assert made.drop_expired() == [B.name]
    assert made.names == (A.name,)


def test_without_ttl_a_jwt_is_dropped_when_it_expires(tmp_path: Path) -> None:
    clock = Clock()
    made = directory(tmp_path, clock)
    made.save(A.name, OPERATOR.account("A", exp=int(NOW_S) + 5).jwt)
    made.save(B.name, B.jwt)
    assert made.drop_expired() == []
    clock.now_s += 5
    assert [name for name, _ in made.valid()] == [A.name, B.name]
    clock.now_s += 1
    assert [name for name, _ in made.valid()] == [B.name]
    assert made.drop_expired() == [A.name]
    assert made.digest == digest(B.jwt)


@pytest.mark.parametrize("keep", [False, True])
def test_deleting(tmp_path: Path, keep: bool) -> None:
    made = directory(tmp_path)
    made.save(A.name, A.jwt)
    assert made.delete(A.name, keep=keep)
    assert not made.delete(A.name, keep=keep)
    assert made.load(A.name) is None
    assert made.digest == bytes(32)
    assert os.listdir(tmp_path / "jwt") == ([f"{A.name}.jwt.deleted"] if keep else [])
    assert directory(tmp_path).names == ()


def test_an_older_jwt_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    made = directory(tmp_path)
    made.save(A.name, A.jwt)
    older = OPERATOR.account("A", jti="old", iat=ISSUED_AT - 1).jwt
    newer = OPERATOR.account("A", jti="new", iat=ISSUED_AT + 1).jwt
    same_id = OPERATOR.account("A", iat=ISSUED_AT + 2).jwt
    assert not made.save_if_newer(A.name, older)
    assert not made.save_if_newer(A.name, same_id)
    assert made.save_if_newer(A.name, newer)
    assert made.load(A.name) == newer


def test_a_reload_tells_what_has_changed(tmp_path: Path) -> None:
    made = directory(tmp_path)
    for account in (A, B):
        made.save(account.name, account.jwt)
    changed = OPERATOR.account("B", limits={"conn": 1}).jwt
    (tmp_path / "jwt" / f"{B.name}.jwt").write_text(changed)
    (tmp_path / "jwt" / f"{C.name}.jwt").write_text(C.jwt)
    (tmp_path / "jwt" / f"{A.name}.jwt").unlink()
    assert sorted(made.reload()) == sorted([B.name, C.name])
    assert sorted(made.names) == sorted([B.name, C.name])


def test_a_file_that_was_removed_by_hand_is_missing(tmp_path: Path) -> None:
    made = directory(tmp_path)
    made.save(A.name, A.jwt)
    (tmp_path / "jwt" / f"{A.name}.jwt").unlink()
    assert made.load(A.name) is None
    assert made.digest == bytes(32)
