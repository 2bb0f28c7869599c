"""Founding: one meta group, whatever is lost, and whenever servers crash or come."""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.jetstream.meta_group.founding import Founding, PeerView
from natsd.jetstream.meta_group.founding_messages import (
    Accept,
    Chosen,
    MalformedFounding,
    Prepare,
    Promise,
    Refused,
    decode,
    encode,
)
from natsd.jetstream.meta_group.founding_record import (
    RECORD_FILE,
    Ballot,
    Founded,
    Record,
    Vote,
    read_record,
    write_record,
)
from natsd.store.crypto.vault import Vault
from natsd.store.disk.disk import Disk
from natsd.store.disk.real_disk import RealDisk
from natsd.store.disk.twin_file import copy_of
from tests.jetstream.meta_group.founding_cluster import ROUNDS_MAX, Cluster, Simulation
from tests.jetstream.meta_group.founding_cluster import Disk as EmptyDisk
from tests.jetstream.meta_group.founding_states import States
from tests.store.faulty_disk import FaultyDisk, PowerLoss

TORTURE = int(os.environ.get("NATSD_TORTURE", "1"))
ABC = Founded("G1", ("A", "B", "C"))


def cluster(names: str = "ABC", expected: int = 3) -> Cluster:
    return Cluster(dict.fromkeys(names, expected))


def meet(servers: Cluster) -> None:
    """Let all know of all."""
    for name in servers.servers:
        servers.tell(name)


def kinds(servers: Cluster) -> list[str]:
    """Return the messages on their way, such as "AB Prepare"."""
    return [f"{sender}{to} {type(decode(data)).__name__}" for sender, to, data in servers.messages]


# ---- examples


def test_three_servers_found_a_group_in_one_tick() -> None:
    servers = cluster()
    servers.start("A", "B", "C")
    servers.round()
    assert servers.founded == dict.fromkeys("ABC", ABC)
    assert all(server.is_founder for server in servers.servers.values())
    assert [disk.writes for disk in servers.disks.values()] == [3, 3, 3]
    servers.round()
    assert servers.groups == 1
    assert [disk.writes for disk in servers.disks.values()] == [3, 3, 3]


def test_a_founded_server_proposes_nothing() -> None:
    servers = cluster()
    servers.start("A", "B", "C")
    servers.round()
    servers.servers["A"].tick({"B": PeerView(3), "C": PeerView(3)})  # old views
    assert servers.messages == []


def test_the_messages_of_a_founding() -> None:
    servers = cluster("AB", 2)
    servers.start("A", "B")
    meet(servers)
    servers.tick("B")  # A has the lower name
    servers.tick("A")
    seen = []
    while servers.messages:
        seen += kinds(servers)
        servers.deliver()
    assert seen == ["AB Prepare", "BA Promise", "AB Accept", "BA Accepted", "AB Chosen"]


def test_servers_wait_for_the_one_that_is_absent() -> None:
    servers = cluster()
    servers.start("A", "B")
    for _ in range(5):
        servers.round()
    assert servers.founded == {"A": None, "B": None}
    assert [disk.writes for disk in servers.disks.values()] == [0, 0]
    servers.start("C")
    servers.round()
    assert servers.founded == dict.fromkeys("ABC", ABC)


def test_the_largest_expectation_counts() -> None:
    servers = Cluster({"A": 2, "B": 2, "C": 3})
    servers.start("A", "C")
    servers.round()
    assert servers.founded == {"A": None, "C": None}
    servers.start("B")
    servers.round()
    assert servers.founded == dict.fromkeys("ABC", ABC)


def test_a_server_that_expects_no_other_founds_alone() -> None:
    servers = cluster("A", 1)
    servers.start("A")
    servers.tick("A")
    assert servers.founded == {"A": Founded("G1", ("A",))}


def test_a_late_server_sees_the_group_and_joins_it() -> None:
    servers = cluster("ABCD")
    servers.start("B", "C", "D")
    servers.round()
    servers.start("A")  # its turn, if it knew nothing of the group
    servers.round()
    assert servers.founded == dict.fromkeys("ABCD", Founded("G1", ("B", "C", "D")))
    assert not servers.servers["A"].is_founder
    servers.kill("A")
    servers.start("A")  # it keeps to the group, although it sees nobody
    assert servers.founded["A"] == Founded("G1", ("B", "C", "D"))


def test_those_that_have_heard_of_a_group_found_no_other() -> None:
    servers = cluster("ABCD", 2)
    servers.split("AB", "CD")
    servers.start("A", "B")
    servers.round()
    servers.split("ABCD")
    servers.start("C", "D")
    servers.tell("A")
    servers.tick("C")
    servers.kill("C")
    servers.split("AB", "CD")
    servers.start("C")
    for _ in range(3):
        servers.round()
    assert servers.founded == dict.fromkeys("ABCD", Founded("G1", ("A", "B")))


@pytest.mark.parametrize("delivered", range(9))
def test_a_proposer_that_crashes_completes_with_the_same_value(delivered: int) -> None:
    servers = cluster()
    servers.start("A", "B", "C")
    meet(servers)
    servers.tick("A")
    for _ in range(delivered):
        servers.deliver()
    begun = servers.disks["A"].read().vote
    assert (begun is not None) == (delivered >= 4)  # two Prepare and two Promise
    servers.kill("A")
    servers.messages.clear()
    servers.start("A")
    servers.round()
    assert servers.founded == dict.fromkeys("ABC", begun.value if begun is not None else ABC)
    assert servers.groups == 1


def test_another_server_completes_what_the_proposer_began() -> None:
    servers = cluster("ABC", 2)
    servers.start("A", "B")
    servers.round()  # A is the only one that knows the outcome:
    servers.disks["B"].write(
        Record(Ballot(1, "A"), Vote(Ballot(1, "A"), Founded("G1", ("A", "B"))))
    )
    servers.chosen.pop("B")
    servers.kill("A")
    servers.kill("B")
    servers.start("B", "C")
    servers.round()
    assert servers.servers["B"].waits_for == {"A"}  # it may know what was chosen
    writes = servers.disks["C"].writes
    servers.round()
    assert servers.disks["C"].writes == writes  # waiting costs nothing
    servers.start("A")
    servers.round()
    servers.round()
    assert servers.founded == dict.fromkeys("ABC", Founded("G1", ("A", "B")))


def test_a_lost_message_is_sent_again_in_the_same_ballot() -> None:
    servers = cluster()
    servers.start("A", "B", "C")
    meet(servers)
    for _ in range(3):
        servers.tick("A")
        servers.messages.pop()  # to C
        while servers.messages:
            servers.deliver()
    assert servers.servers["A"].waits_for == {"C"}
    assert servers.disks["B"].writes == 1
    servers.round()
    assert servers.founded["C"] == ABC


def test_a_refused_ballot_is_followed_by_a_higher_one() -> None:
    servers = cluster()
    servers.start("A", "B", "C")
    servers.servers["B"].receive("C", encode(Prepare(Ballot(7, "C"))))
    servers.messages.clear()
    servers.round()
    assert servers.founded["A"] is None
    servers.round()
    assert servers.founded == dict.fromkeys("ABC", ABC)
    assert servers.disks["B"].read().promised == Ballot(8, "A")


def test_the_highest_vote_counts() -> None:
    servers = cluster()
    servers.start("A", "B", "C")
    meet(servers)
    servers.tick("A")
    ballot, other = Ballot(1, "A"), Founded("G2", ("A", "C"))
    servers.messages.clear()
    for name, vote in [("B", Vote(Ballot(0, "Y"), ABC)), ("C", Vote(Ballot(0, "Z"), other))]:
        servers.servers["A"].receive(name, encode(Promise(ballot, vote)))
    assert decode(servers.messages[0][2]) == Accept(Vote(ballot, other))


def test_an_old_ballot_is_refused() -> None:
    servers = cluster()
    servers.start("A")
    servers.servers["A"].receive("C", encode(Prepare(Ballot(7, "C"))))
    servers.messages.clear()
    servers.servers["A"].receive("B", encode(Accept(Vote(Ballot(7, "B"), ABC))))
    assert [decode(data) for _, _, data in servers.messages] == [
        Refused(Ballot(7, "B"), Ballot(7, "C"))
    ]
    assert servers.disks["A"].read().vote is None


def test_a_server_that_knows_the_group_says_so() -> None:
    servers = cluster()
    servers.start("A")
    servers.servers["A"].receive("B", encode(Chosen(ABC)))
    servers.servers["A"].receive("C", encode(Prepare(Ballot(7, "C"))))
    assert [(to, decode(data)) for _, to, data in servers.messages] == [("C", Chosen(ABC))]


def test_nothing_is_answered_that_is_not_on_disk(caplog: pytest.LogCaptureFixture) -> None:
    servers = cluster()
    servers.start("A", "B", "C")
    meet(servers)

    def fail(name: str, record: Record) -> None:
        raise OSError("no space")

    servers.tick("A")
    servers.persist = fail  # type: ignore[method-assign] # a fault of the disk
    servers.deliver()
    assert kinds(servers) == ["AC Prepare"]
    assert "founding of the meta group waits: no space" in caplog.text


def test_two_groups_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    servers = cluster("ABCD", 2)
    servers.start("A", "B", "C", "D")
    servers.split("AB", "CD")
    servers.round()
    servers.split("ABCD")
    servers.round()
    servers.round()
    assert servers.founded["A"] != servers.founded["C"]
    lines = [each.message for each in caplog.records if "two meta groups" in each.message]
    assert len(lines) == 4
    assert "G1 of A, B and G2 of C, D; remove" in lines[0]


def test_the_rescue_of_a_group_takes_its_place(caplog: pytest.LogCaptureFixture) -> None:
    disk = EmptyDisk()
    founding = Founding("A", 3, disk.read(), disk.write, lambda _to, _data: None, lambda: "G")
    founding.receive("B", encode(Chosen(ABC)))
    rescue = Founded("G2", ("B",), ("G1",), ("C",))
    founding.receive("B", encode(Chosen(rescue)))
    assert founding.founded == disk.read().founded == rescue
    founding.receive("C", encode(Chosen(ABC)))  # it has not heard of the rescue yet
    assert founding.founded == rescue
    assert "two meta groups" not in caplog.text


# ---- damage


def test_founding_with_a_damaged_server_waits() -> None:
    servers = cluster()
    servers.start("A", "B")
    servers.start_damaged("C")
    for _ in range(3):
        servers.round()
    assert servers.founded == dict.fromkeys("ABC")
    assert servers.servers["A"].waits_for == {"C"}
    servers.start("C")  # the operator has removed its record
    servers.round()
    assert servers.founded == dict.fromkeys("ABC", ABC)


def test_a_member_that_lost_its_disk_joins_the_group() -> None:
    servers = cluster()
    servers.start("A", "B", "C")
    servers.round()
    del servers.chosen["C"]  # it may forget
    servers.disks["C"] = EmptyDisk()
    servers.start("C")
    servers.round()
    wiped = servers.servers["C"]
    assert (wiped.founded, wiped.is_founder) == (ABC, False)


def test_a_damaged_server_joins_the_group() -> None:
    servers = cluster()
    servers.start("A", "B", "C")
    servers.round()
    writes = servers.disks["C"].writes
    servers.start_damaged("C")
    servers.round()
    damaged = servers.servers["C"]
    assert (damaged.founded, damaged.is_damaged, damaged.is_founder) == (ABC, True, False)
    assert servers.disks["C"].writes == writes


# ---- every order of events, and many long ones at random


@pytest.mark.parametrize(
    ("names", "expected", "looks", "ticks", "restarts"),
    [
        ("ABC", 2, ["A sees B", "A sees C", "B sees C"], 3, 1),
        ("ABC", 2, ["A sees BC", "A sees C", "B sees C"], 2, 1),
        ("ABC", 2, ["A sees C", "B sees C"], 4, 0),
        ("ABCD", 2, ["A sees B", "A sees D", "B sees C"], 3, 1),
        ("ABCDE", 3, ["A sees CD", "B sees CE"], 2, 0),
    ],
)
def test_in_every_order_of_events(
    names: str, expected: int, looks: list[str], ticks: int, restarts: int
) -> None:
    """No two groups have a common member, whichever messages arrive, and when, and how often."""
    seen = [(look[0], look.split()[-1]) for look in looks]
    states = States(dict.fromkeys(names, expected), seen)
    assert states.explore(ticks, restarts) > 1000


@pytest.mark.parametrize("part", range(8))
def test_whatever_happens(part: int) -> None:
    """Check after each write that no two groups have a common member; Cluster.check."""
    for seed in range(part, 1600 * TORTURE, 8):
        expected = expected_of(seed)
        try:
            found_in_disorder(seed, expected)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, expected {expected}: {error}") from error


def expected_of(seed: int) -> dict[str, int]:
    """Return how many servers each of them expects: often as few as exclude a second group."""
    chance = random.Random(seed)
    names = "ABCDE"[: chance.choice([2, 3, 3, 3, 4, 5])]
    majority = len(names) // 2 + 1
    least, most = chance.choice([(majority, majority), (majority, len(names)), (2, 2)])
    return {name: chance.randint(least, most) for name in names}


def found_in_disorder(seed: int, expected: dict[str, int]) -> None:
    simulation = Simulation(seed, expected)
    for _ in range(simulation.chance.choice([0, 30, 100, 300])):
        simulation.step()
    simulation.heal()
    for _ in range(ROUNDS_MAX):
        simulation.round()
    founded = set(simulation.founded.values())
    assert None not in founded, "not founded"
    if min(expected.values()) * 2 > len(expected):
        assert len(founded) == 1, f"two groups: {founded}"


# ---- bytes

names = st.text(max_size=5)
ballots = st.builds(Ballot, st.integers(0, 1 << 40), names)
values = st.builds(
    Founded, names, st.lists(names, max_size=4).map(lambda each: tuple(sorted(each)))
)
votes = st.builds(Vote, ballots, values)
records = st.builds(Record, ballots, st.none() | votes, st.none() | values)


@given(st.binary())
def test_other_bytes_are_no_message(data: bytes) -> None:
    for each in (data, b"\x01" + data, b'\x01{"type":"prepare","ballot":[1,"' + data + b'"]}'):
        with contextlib.suppress(MalformedFounding):
            decode(each)


def test_a_malformed_message_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    servers = cluster()
    servers.start("A")
    servers.servers["A"].receive("B", b"\x02{}")
    assert servers.messages == []
    assert "message of B on the meta group is ignored: unknown format" in caplog.text


def vault(root: Path, disk: Disk | None = None) -> Vault:
    return Vault(disk or RealDisk(), root, os.urandom)


@given(records)
def test_what_is_written_is_read(record: Record) -> None:
    disk = FaultyDisk()
    disk.mkdir(Path("/meta"))
    write_record(vault(Path("/"), disk), Path("/meta"), record)
    assert read_record(vault(Path("/"), disk), Path("/meta")) == record


def test_a_server_without_a_record_is_new(tmp_path: Path) -> None:
    assert read_record(vault(tmp_path), tmp_path) == Record()


def test_one_damaged_file_costs_nothing(tmp_path: Path) -> None:
    write_record(vault(tmp_path), tmp_path, Record(founded=ABC))
    path = tmp_path / RECORD_FILE
    path.write_bytes(b"?" * path.stat().st_size)
    assert read_record(vault(tmp_path), tmp_path) == Record(founded=ABC)
    assert path.read_bytes() == copy_of(path).read_bytes()


def test_a_damaged_record_is_not_a_new_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_record(vault(tmp_path), tmp_path, Record(founded=ABC))
    path = tmp_path / RECORD_FILE
    path.unlink()
    copy_of(path).write_bytes(b"?" * 8192)
    assert read_record(vault(tmp_path), tmp_path) is None
    [line] = [each for each in caplog.messages if "founding a meta group" in each]
    assert line.startswith(f"{path} is damaged: ")
    assert line.endswith("remove this file and its .copy, and start again")
    assert copy_of(path).read_bytes() == b"?" * 8192


@pytest.mark.parametrize("body", [b"", b"\x02{}", b"\x01[]", b'\x01{"promised":7}'])
def test_a_record_of_a_later_version_is_not_a_new_one(
    tmp_path: Path, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    vault(tmp_path).write(tmp_path / RECORD_FILE, b"NATSDFND", body)
    assert read_record(vault(tmp_path), tmp_path) is None
    assert "is not understood" in caplog.text


@pytest.mark.parametrize("seed", range(30 * TORTURE))
def test_power_fails_at_any_call(seed: int) -> None:
    """What was written or read once stays; a write that fails leaves the old or the new record."""
    chance, disk, directory = random.Random(seed), FaultyDisk(seed), Path("/meta")
    disk.mkdir(directory)
    disk.sync_dir(Path("/"))
    known, begun = Record(), Record()
    for number in range(1, 20):
        disk.power_fails_at = chance.randrange(40)
        try:
            found = read_record(vault(Path("/"), disk), directory)
            assert found in (known, begun)
            known = found
            begun = Record(Ballot(number, "A"))
            write_record(vault(Path("/"), disk), directory, begun)
            known = begun
        except PowerLoss:
            pass
        disk = disk.kill() if chance.random() < 0.5 else disk.crash(chance.randrange(1 << 30))
