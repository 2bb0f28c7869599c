"""Publishes that a follower applies as they are encoded: the same state as one by one."""

from __future__ import annotations

import random
from pathlib import Path

from natsd.jetstream.commands.commands import Command, Publish, Skip
from natsd.jetstream.commands.encoding import encode
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.replicas.log_entry import FIRST, NUMBER, command_at
from natsd.jetstream.stream.publishing import join_commands
from tests.jetstream.commands.replay import following, state_of
from tests.jetstream.serving import create, serving

NOW_NS = 1_700_000_000_000_000_000


def commands_of(chosen: random.Random, count: int) -> list[Command]:
    """Return publishes of all kinds but delayed ones, a few of which replace messages."""
    commands: list[Command] = []
    for sequence in range(1, count + 1):
        removed = ((sequence - 5, sequence - 4),) if chosen.random() < 0.1 and sequence > 5 else ()
        commands.append(
            Publish(
                sequence=sequence,
                time_ns=NOW_NS + sequence,
                subject=b"s.%d" % chosen.randrange(5),
                headers=b"NATS/1.0\r\nA: b\r\n\r\n" if chosen.random() < 0.3 else b"",
                data=bytes(chosen.choice([0, 1, 127, 128, 20_000])),
                expires_ns=chosen.choice([0, 0, -1, NOW_NS * 2]),
                message_id=b"%d" % sequence if chosen.random() < 0.3 else b"",
                is_skipped=chosen.random() < 0.1,
                removed=removed,
            )
        )
    return commands


async def config_of(tmp_path: Path) -> tuple[StreamConfig, int]:
    async with serving(tmp_path / "first") as jetstream:
        stream = await create(jetstream, "S", subjects=["s.*"], allow_msg_ttl=True)
        return stream.config, stream.created_ns


async def test_the_state_is_that_of_the_commands(tmp_path: Path) -> None:
    config, created_ns = await config_of(tmp_path)
    commands = commands_of(random.Random(1), 300)
    async with following(config, created_ns, tmp_path / "one") as follower:
        for index, command in enumerate(commands, 1):
            await follower.apply(index, command)
        expected = await state_of(follower.stream)
    entry = join_commands([encode(each) for each in commands])
    async with following(config, created_ns, tmp_path / "other") as follower:
        at, encoded = FIRST, 0
        while follower.applied < len(commands):
            applied, at = follower.apply_publishes(entry, at, len(commands) - follower.applied)
            encoded += applied
            if follower.applied < len(commands):
                command, at = command_at(entry, at)
                await follower.apply(follower.applied + 1, command)
        assert encoded == sum(isinstance(each, Publish) for each in commands)
        assert await state_of(follower.stream) == expected


async def test_other_bytes_are_left_alone(tmp_path: Path) -> None:
    """Bytes that are cut off or changed are never read beyond their end."""
    config, created_ns = await config_of(tmp_path)
    chosen = random.Random(2)
    async with following(config, created_ns, tmp_path / "other") as follower:
        assert follower.apply_publishes(join_commands([encode(Skip(3))]), FIRST, 1) == (0, FIRST)
        for sequence in range(1, 400):
            (command,) = commands_of(chosen, 1)
            assert isinstance(command, Publish)
            last = follower.stream.readers.log.last_sequence
            changed = bytearray(encode(command))
            for _ in range(chosen.randrange(4)):
                changed[chosen.randrange(min(len(changed), 40))] = chosen.randrange(256)
            cut = bytes(changed[: chosen.randrange(len(changed)) + 1])
            entry = join_commands([cut if sequence % 2 else bytes(changed)])
            applied, at = follower.apply_publishes(entry, FIRST, 1)
            assert (applied, at) in ((0, FIRST), (1, len(entry)))
            assert follower.stream.readers.log.last_sequence == last + applied
        length = NUMBER.pack(1 << 31)
        assert follower.apply_publishes(NUMBER.pack(1) + length, FIRST, 1) == (0, FIRST)
