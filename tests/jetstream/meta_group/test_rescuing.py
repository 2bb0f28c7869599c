"""What is recorded of a rescue: what was done, what was not, and why."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from natsd.jetstream.meta_group.answering import Unanswered
from natsd.jetstream.meta_group.assignments import (
    Assign,
    Assignment,
    Assignments,
    Change,
    Dismiss,
    Introduce,
    Introduced,
    Reassign,
    Remove,
)
from natsd.jetstream.meta_group.peers import Peers
from natsd.jetstream.meta_group.rescue_order import (
    META,
    RECORDS_FILE,
    RescuedGroup,
    RescueOrder,
    read_order,
    read_records,
    shown,
    write_order,
)
from natsd.jetstream.meta_group.rescuing import CHANGED, Rescuing
from natsd.store.crypto.vault import Vault
from natsd.store.disk.real_disk import RealDisk

ORDERED, NOTED = "2026-11-28T10:00:00Z", "1970-01-01T00:00:07Z"


def stream(name: str, group: str) -> Assignment:
    return Assignment("A", name, msgspec.Raw(b'{"num_replicas":3}'), 1, ("n3",), group=group)


def rescued(name: str) -> RescuedGroup:
    what = f"stream 'A > {name}'"
    return RescuedGroup(what, f"old-{name}", f"new-{name}", ("n1", "n2", "n3"), "n3", 9, 2, 7, 4)


class Rescue:
    """An order for the streams S and T, and one to drop G; `assignments` are the meta group's."""

    def __init__(self, directory: Path, *, new_meta: str = "") -> None:
        self.directory = directory
        self.vault = Vault(RealDisk(), directory, os.urandom)
        self.assignments = Assignments(lambda _before, _after: None)
        self.assignments.make(Introduce("n1"))
        found = {name: self.assigned(name) for name in "STG"}
        changes: tuple[Change, ...] = (
            Reassign(found["S"].version, stream("S", "new-S")),
            Reassign(found["T"].version, stream("T", "new-T")),
            Remove("A", "G", found["G"].version),
            Dismiss("n1", is_lost=True),
        )
        gone = RescuedGroup("stream 'A > G'", "old-G", "", ("n1",))
        groups = (rescued("S"), rescued("T"), gone)
        order = RescueOrder(ORDERED, "me@here", "meta", new_meta, ("n1",), ("n1",), changes, groups)
        write_order(self.vault, directory, order)
        self.told: list[dict[str, Any]] = []
        self.unanswered = 0  # changes that are made, though nobody says so

    def assigned(self, name: str) -> Assignment:
        found = self.assignments.make(Assign(stream(name, f"old-{name}")))
        assert isinstance(found, Assignment)
        return found

    def start(self) -> Rescuing:
        loop = asyncio.get_running_loop()
        peers = Peers(client=None, describe=None, loop=loop)  # type: ignore[arg-type]  # nobody is heard
        rescuing = Rescuing(None, peers, self.vault, self.directory)  # type: ignore[arg-type]  # no host
        rescuing.now_ns = lambda: 7_000_000_000
        rescuing.news = lambda records: self.told.extend(shown(records))
        rescuing.open()
        return rescuing

    async def propose(self, change: Change) -> Assignment | Introduced | None:
        made = self.assignments.make(change)
        if self.unanswered:
            self.unanswered -= 1
            raise Unanswered("nobody leads")
        return made

    async def carry_out(self) -> None:
        await self.start().propose(self.propose, self.assignments.find)

    @property
    def outcomes(self) -> dict[str, str]:
        """Why each group was not rescued; empty: it was."""
        return {each.group.group: each.refused for each in read_records(self.directory)}


DONE = {"old-S": "", "old-T": "", "old-G": ""}


async def test_what_is_done_is_recorded_and_told(tmp_path: Path) -> None:
    rescue = Rescue(tmp_path)
    await rescue.carry_out()
    assert rescue.outcomes == DONE
    [told] = rescue.told
    assert told == shown(read_records(tmp_path))[0]
    assert {name: told[name] for name in ("time", "ordered", "by", "lost_servers")} == {
        "time": NOTED,
        "ordered": ORDERED,
        "by": "me@here",
        "lost_servers": ("n1",),
    }
    first, _, gone = told["groups"]
    assert (first["server"], first["last_index"], first["committed"]) == ("n3", 9, 4)
    assert first["uncertain"] == 5
    assert first["may_be_lost"].startswith("messages beyond sequence 7, and")
    assert gone["may_be_lost"].startswith("all of it")
    assert read_order(rescue.vault, tmp_path) is None


async def test_what_was_changed_or_deleted_meanwhile_is_skipped(tmp_path: Path) -> None:
    rescue = Rescue(tmp_path)
    for name in "SG":
        found = rescue.assignments.find("A", name)
        assert found is not None
        rescue.assignments.make(Reassign(found.version, stream(name, "other")))
    found = rescue.assignments.find("A", "T")
    assert found is not None
    rescue.assignments.make(Remove("A", "T", found.version))
    await rescue.carry_out()
    assert rescue.outcomes == {
        "old-S": CHANGED,
        "old-T": "it was deleted meanwhile",
        "old-G": CHANGED,
    }
    [told] = rescue.told
    assert [each["skipped"] for each in told["groups"]] == list(rescue.outcomes.values())
    assert not any("may_be_lost" in each for each in told["groups"])


@pytest.mark.parametrize("lost", [1, 2, 3])
async def test_what_was_made_though_the_answer_was_lost_is_done(tmp_path: Path, lost: int) -> None:
    rescue = Rescue(tmp_path)
    rescue.unanswered = lost
    for _ in range(lost):  # starts that end early
        await rescue.carry_out()
        assert not rescue.outcomes
    await rescue.carry_out()
    assert rescue.outcomes == DONE


async def test_a_server_that_does_not_know_yet_what_was_made_tries_again(tmp_path: Path) -> None:
    rescue = Rescue(tmp_path)
    behind = {name: rescue.assignments.find("A", name) for name in "STG"}
    rescue.unanswered = 1
    await rescue.carry_out()
    await rescue.start().propose(rescue.propose, lambda _account, name: behind[name])
    assert not rescue.outcomes
    await rescue.carry_out()
    assert rescue.outcomes == DONE


async def test_after_a_crash_the_rescued_meta_group_says_what_was_made(tmp_path: Path) -> None:
    rescue = Rescue(tmp_path, new_meta="new-meta")
    found = rescue.assignments.find("A", "S")
    assert found is not None
    rescue.assignments.make(Reassign(found.version, stream("S", "new-S")))
    await rescue.start().finish_meta(rescue.assignments.find)
    assert rescue.outcomes == {"old-S": "", "old-T": CHANGED, "old-G": CHANGED}


async def test_a_group_that_cannot_go_on_after_all_is_recorded_once(tmp_path: Path) -> None:
    rescue = Rescue(tmp_path)
    await rescue.carry_out()
    rescuing = rescue.start()
    for _ in range(3):  # it is tried again and again
        await rescuing.failed("new-S", "its log here is damaged")
    await rescuing.failed("unknown", "its log here is damaged")
    assert rescue.outcomes == DONE | {"old-S": "its log here is damaged"}
    assert len(read_records(tmp_path)) == len(DONE) + 1


async def test_a_refusal_is_recorded_for_each_group_and_not_told(tmp_path: Path) -> None:
    rescue = Rescue(tmp_path)
    await rescue.start().refuse("n1 was heard of")
    assert rescue.outcomes == dict.fromkeys(DONE, "n1 was heard of")
    assert not rescue.told


async def test_a_record_that_a_crash_has_cut_off_is_left_out(tmp_path: Path) -> None:
    rescue = Rescue(tmp_path)
    await rescue.carry_out()
    path = tmp_path / RECORDS_FILE
    path.write_bytes(path.read_bytes()[:-20])
    assert [each.group.group for each in read_records(tmp_path)] == ["old-S", "old-T"]


def test_what_the_rescue_of_the_meta_group_may_cost() -> None:
    meta = RescuedGroup(META, "old", "new", ("n1", "n2", "n3"), "n3", 8, 2, 0, 8)
    assert meta.uncertain == 0
    assert meta.may_be_lost == "streams created, changed or deleted beyond entry 8"
