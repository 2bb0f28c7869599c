"""Encrypted logs: what can be read without a key, keys that change, and bytes that were changed."""

import contextlib
import errno
import random
from typing import Any

import pytest

from natsd.raft.entry import HardState, Health, Membership, Snapshot
from natsd.raft.storage.raft_logs import NO_KEYS, GroupWrite, RaftLogs
from natsd.raft.storage.records import LOG_MAGIC, SEALED
from natsd.store.crypto import keys as crypto
from natsd.store.crypto.keys import Cipher, OperatorKeys
from natsd.store.errors import EncryptionError, KeyMissing, KeyUnexpected, KeyWrong
from natsd.store.wal.entries import decode_entries, encode_entries
from natsd.store.wal.format import (
    BATCH_HEADER_BYTES,
    encode_batch,
    encode_header,
    find_batches,
    read_headers,
)
from tests.raft.storage.logs import KEYS, ROOT, contents, entry, open_logs, put, write
from tests.raft.storage.model import History
from tests.store.faulty_disk import FaultyDisk, PowerLoss

SECRET = b"Planted7Secret"
OTHER = OperatorKeys(b"another key")
ROTATING = OperatorKeys(OTHER.key, KEYS.key)
SNAPSHOT = Snapshot(1, 1, Membership(frozenset({1})), SECRET * 10)


def fill(disk: FaultyDisk, keys: OperatorKeys) -> None:
    """Write the secret into entries and a snapshot."""
    logs = open_logs(disk, keys=keys)
    put(logs, "g", SNAPSHOT)
    entries = [entry(2, data=SECRET), entry(3, data=SECRET * 99)]
    write(logs, GroupWrite("g", HardState(1, 1), SNAPSHOT, entries=entries))
    write(logs, GroupWrite("h", HardState(7, 2)))
    logs.close()


def check(disk: FaultyDisk, keys: OperatorKeys) -> None:
    """Check that all that `fill` wrote is there."""
    logs = open_logs(disk, seed=1, keys=keys)
    found = logs.take_recovered()
    assert logs.damage == []
    assert (found["g"].hard_state, found["g"].snapshot) == (HardState(1, 1), SNAPSHOT)
    assert [each.data for each in found["g"].entries] == [SECRET, SECRET * 99]
    assert found["h"].hard_state == HardState(7, 2)
    logs.close()


def in_clear(disk: FaultyDisk) -> set[str]:
    return {path.name for path, data in contents(disk).items() if SECRET in data}


@pytest.mark.parametrize("cipher", Cipher)
def test_nothing_is_in_clear(cipher: Cipher) -> None:
    keys = OperatorKeys(KEYS.key, cipher=cipher)
    disk = FaultyDisk()
    fill(disk, keys)
    check(disk, keys)
    assert in_clear(disk) == set()


def test_without_a_key_it_would_be_seen() -> None:
    disk = FaultyDisk()
    fill(disk, NO_KEYS)
    assert in_clear(disk) == {"log.1", "g.1.1"}


def test_plain_logs_are_as_they_were() -> None:
    """A server without a key writes what earlier versions read: no version, kind or file is new."""
    disk = FaultyDisk()
    fill(disk, NO_KEYS)
    found = contents(disk)
    assert {path.name for path in found} == {"log.1", "state.1", "g.1.1"}
    for name in ("log.1", "state.1"):
        assert [each.version for each in read_headers(found[ROOT / name])] == [1, 1]


@pytest.mark.parametrize("seed", range(20))
def test_plain_logs_are_encrypted_at_a_start(seed: int) -> None:
    """Power fails again and again meanwhile; then nothing is lost, and nothing is in clear."""
    chance = random.Random(seed)
    disk, history = FaultyDisk(seed), History(chance)
    logs = open_logs(disk, seed)
    history.run(logs, 20)
    logs.close()
    state = history.states[-1]
    for _ in range(6):
        disk.power_fails_at = chance.randrange(120)
        with contextlib.suppress(PowerLoss):
            open_logs(disk, chance.randrange(1 << 30), keys=KEYS)
        disk = disk.crash(chance.randrange(1 << 30)) if chance.random() < 0.7 else disk.kill()
    logs = open_logs(disk, chance.randrange(1 << 30), keys=KEYS)
    assert logs.damage == []
    assert history.check(logs.take_recovered()) == state
    logs.close()
    names = {path.name for path in contents(disk)}
    assert "key.db" in names
    assert "encrypting.db" not in names
    for path, data in contents(disk).items():
        if path.name.startswith(("log.", "state.")):
            assert {each.version for each in read_headers(data)} == {2}
        assert b"data" * 3 not in data
    with pytest.raises(KeyMissing):
        open_logs(disk)


def test_a_plain_file_that_cannot_be_removed_is_removed_by_the_next_start() -> None:
    disk = FaultyDisk()
    fill(disk, NO_KEYS)
    disk.fail("unlink", errno.EIO, path="log.1")
    check(disk, KEYS)
    assert "encrypting.db" in {path.name for path in contents(disk)}
    assert in_clear(disk) == {"log.1"}
    disk.heal()
    check(disk, KEYS)
    names = {path.name for path in contents(disk)}
    assert "key.db" in names
    assert "encrypting.db" not in names
    assert in_clear(disk) == set()


def test_a_plain_log_with_damage_is_encrypted_too() -> None:
    """The copy of a snapshot that is left is encrypted, and takes the place of both."""
    disk = FaultyDisk()
    fill(disk, NO_KEYS)
    file = disk.open(ROOT / "snapshots/g.1.1")
    file.pwrite(b"\xff", 20)
    file.fsync()
    logs = open_logs(disk, seed=1, keys=KEYS)
    assert [each.what for each in logs.damage] == ["one copy of the snapshot does not verify"]
    logs.close()
    check(disk, KEYS)
    assert in_clear(disk) == set()


def test_keys_are_rotated_at_a_start() -> None:
    """The previous key is needed once; what it wrote is not written again."""
    disk = FaultyDisk()
    fill(disk, KEYS)
    check(disk, ROTATING)
    check(disk, OTHER)
    with pytest.raises(KeyWrong):
        open_logs(disk, keys=KEYS)


@pytest.mark.parametrize("seed", range(10))
def test_a_power_cut_during_a_rotation(seed: int) -> None:
    chance = random.Random(seed)
    disk = FaultyDisk(seed)
    fill(disk, KEYS)
    for _ in range(4):
        disk.power_fails_at = chance.randrange(40)
        with contextlib.suppress(PowerLoss):
            open_logs(disk, chance.randrange(1 << 30), keys=ROTATING)
        disk = disk.crash(chance.randrange(1 << 30))
    check(disk, ROTATING)
    check(disk, OTHER)


@pytest.mark.parametrize(
    ("keys", "refusal", "text"),
    [
        (NO_KEYS, KeyMissing, "no key is given"),
        (OTHER, KeyWrong, "the key does not open it"),
        (OperatorKeys(b"x", b"y"), KeyWrong, "neither the key nor the previous one opens it"),
    ],
)
def test_a_wrong_key_changes_nothing(
    keys: OperatorKeys, refusal: type[EncryptionError], text: str
) -> None:
    disk = FaultyDisk()
    fill(disk, KEYS)
    before = contents(disk)
    with pytest.raises(refusal, match=text) as refused:
        open_logs(disk, keys=keys)
    assert str(refused.value).startswith(str(ROOT / "key.db"))
    assert "\n" not in str(refused.value)
    assert contents(disk) == before
    check(disk, KEYS)


@pytest.mark.parametrize("keys", [NO_KEYS, KEYS])
def test_a_lost_key_file_stops_the_start(keys: OperatorKeys) -> None:
    """It is not taken for a directory that was never encrypted."""
    disk = FaultyDisk()
    fill(disk, KEYS)
    for name in ("key.db", "key.db.copy"):
        disk.unlink(ROOT / name)
    before = contents(disk)
    with pytest.raises(KeyMissing, match=r"is encrypted, but /raft/key\.db is missing"):
        open_logs(disk, keys=keys)
    assert contents(disk) == before


def test_the_key_file_of_other_logs_opens_nothing() -> None:
    disk, other = FaultyDisk(), FaultyDisk(1)
    fill(disk, KEYS)
    open_logs(other, seed=9, keys=KEYS).close()
    for name in ("key.db", "key.db.copy"):
        file = disk.open(ROOT / name)
        file.pwrite(contents(other)[ROOT / name], 0)
        file.fsync()
    before = contents(disk)
    with pytest.raises(KeyWrong, match=r"is undamaged, but the key in key\.db does not open it"):
        open_logs(disk, keys=KEYS)
    assert contents(disk) == before


def test_a_plain_file_does_not_pass_for_an_encrypted_one() -> None:
    disk, other = FaultyDisk(), FaultyDisk(1)
    fill(disk, KEYS)
    disk.open(ROOT / "log.9", create=True).pwrite(encode_header(LOG_MAGIC, 1, 9, 1), 0)
    with pytest.raises(KeyUnexpected, match=r"log\.9 is not encrypted"):
        open_logs(disk, keys=KEYS)
    disk.unlink(ROOT / "log.9")
    fill(other, NO_KEYS)
    path = ROOT / "snapshots/g.1.1"
    disk.open(path).pwrite(contents(other)[path], 0)
    with pytest.raises(KeyUnexpected, match=r"g\.1\.1 is not encrypted"):
        open_logs(disk, keys=KEYS)


def last_piece(data: bytes) -> tuple[int, int, int, bytes]:
    """Return seed, number and place of the last batch of a segment, and its only piece."""
    seed = read_headers(data)[0].seed
    batch = find_batches(data, seed).batches[-1]
    records = decode_entries(seed, data, batch.offset, batch.size)
    [(_, _, at, sealed)] = [each for each in records if each[0] == SEALED]
    assert at == 1 << 32
    assert sealed is not None
    return seed, batch.number, batch.offset, sealed


@pytest.mark.parametrize("change", ["a bit", "the batch"])
def test_changed_bytes_with_a_good_checksum_are_no_damage(change: str) -> None:
    """They are authenticated, with their place: somebody who has no key has changed them."""
    disk = FaultyDisk()
    fill(disk, KEYS)
    path = ROOT / "log.1"
    seed, number, offset, sealed = last_piece(contents(disk)[path])
    if change == "a bit":
        sealed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    else:
        offset += 512 * 40
        number += 1
    entries = encode_entries(seed, [(SEALED, b"", 1 << 32, sealed)])
    disk.open(path).pwrite(encode_batch(seed, number, 1, entries), offset)
    with pytest.raises(KeyWrong, match=r"log\.1 is undamaged"):
        open_logs(disk, keys=KEYS)


def test_a_damaged_sector_costs_only_the_piece_that_it_is_in() -> None:
    """Entries of other groups in the same batch are intact, and so are these groups."""
    disk = FaultyDisk()
    logs = open_logs(disk, segment_bytes=1 << 20, keys=KEYS)
    write(
        logs,
        GroupWrite("a", HardState(1, 1), entries=[entry(1, data=bytes(100_000))]),
        GroupWrite("b", HardState(1, 1), entries=[entry(1, data=bytes(100_000))]),
    )
    write(logs, GroupWrite("c", HardState(1, 1)))
    logs.close()
    path = ROOT / "log.1"
    data = contents(disk)[path]
    seed = read_headers(data)[0].seed
    batch = find_batches(data, seed).batches[-2]
    assert batch.size > 200_000
    file = disk.open(path)
    file.pwrite(b"\xa5" * 512, batch.offset + BATCH_HEADER_BYTES + 150_000)
    file.fsync()
    logs = open_logs(disk, segment_bytes=1 << 20, keys=KEYS)
    found = logs.take_recovered()
    assert {name: len(each.entries) for name, each in found.items()} == {"a": 1, "b": 0, "c": 0}
    assert found["a"].hard_state.health is Health.SOUND
    assert found["b"].hard_state.health is Health.LOG_LOST
    assert found["c"].hard_state.health is Health.SOUND


class Nonces:
    """Remembers each nonce with its key, and encrypts as the real cipher does."""

    def __init__(self) -> None:
        self.used: set[tuple[bytes, bytes]] = set()
        self.count = 0

    def cipher(self, cipher: Cipher, key: bytes) -> Any:
        aead = MAKE_AEAD(cipher, key)
        outer = self

        class Recording:
            def encrypt(self, nonce: bytes, data: bytes, place: bytes | None) -> bytes:
                outer.count += 1
                outer.used.add((key, nonce))
                return aead.encrypt(nonce, data, place)

            def decrypt(self, nonce: bytes, data: bytes, place: bytes | None) -> bytes:
                return aead.decrypt(nonce, data, place)

        return Recording()


MAKE_AEAD = crypto.make_aead


def test_no_nonce_is_used_twice_with_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in a batch that is written anew in its place, nor after a crash."""
    nonces, chance = Nonces(), random.Random(1)
    monkeypatch.setattr(crypto, "make_aead", nonces.cipher)
    disk = FaultyDisk(1)
    failed = 0
    for start in range(5):
        logs = RaftLogs.open(disk, ROOT, chance.randbytes, keys=KEYS)
        for _ in range(20):
            disk.fail("pwrite", errno.ENOSPC)
            logs.write([GroupWrite("g", HardState(start + 1, 1))], lambda _: None)
            while not logs.waits_for_space and logs._under_way is not None:
                logs.wait()
            failed += logs.waits_for_space
            disk.heal()
            logs.retry()
            while logs._under_way is not None:
                logs.wait()
        disk = disk.crash(start)
    assert failed == 100
    assert nonces.count > 200
    assert len(nonces.used) == nonces.count


def test_plain_logs_are_written_without_a_cipher(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("nothing is encrypted")

    monkeypatch.setattr(crypto, "make_aead", never)
    disk = FaultyDisk()
    fill(disk, NO_KEYS)
    check(disk, NO_KEYS)
