"""A process with one member of a group of registers; the test kills it at any time.

    python -m tests.raft.kill.member '{"server": 1, "ports": {…}, "client_port": …, "directory": …}'

Clients connect to `client_port`, and ask one thing at a time, in numbers:

    0 KEY 0 0              read            answer   ok VALUE
    1 KEY 0 VALUE          write                    ok VALUE-BEFORE
    2 KEY EXPECTED VALUE   compare and set          no: it has not happened;  unknown: it may have
"""

import asyncio
import json
import os
import random
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from natsd.bench.raft.routed_server import start_server
from natsd.raft.entry import Entry
from natsd.raft.errors import NotLeaderError, ProposalDroppedError
from natsd.raft.group import (
    GroupLimits,
    ProposalLostError,
    ProposalUncertainError,
    RaftGroup,
    ReadDroppedError,
    TooManyProposalsError,
)
from natsd.raft.host import HostOptions, RaftHost
from natsd.raft.state_machine import StateMachine
from natsd.raft.storage.raft_logs import RaftLogs
from natsd.raft.transport import member_id
from natsd.store.disk.real_disk import RealDisk

KEYS = 3
COMMAND = struct.Struct("<BBII")
STATE = struct.Struct(f"<{KEYS}I")
LIMITS = GroupLimits(snapshot_after_entries=50)
NOTHING_HAPPENED = (NotLeaderError, ProposalDroppedError, TooManyProposalsError)
NOTHING_HAPPENED_LATER = (ProposalLostError, ReadDroppedError)


class Registers(StateMachine):
    """The state machine."""

    def __init__(self) -> None:
        self.values = [0] * KEYS

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        return [self.apply_one(*COMMAND.unpack(entry.data)) for entry in entries]

    def apply_one(self, kind: int, key: int, expected: int, value: int) -> int:
        before = self.values[key]
        if kind == 1 or before == expected:
            self.values[key] = value
        return before

    def snapshot(self) -> bytes:
        return STATE.pack(*self.values)

    def restore(self, data: bytes) -> None:
        self.values = list(STATE.unpack(data)) if data else [0] * KEYS


async def answer(group: RaftGroup, registers: Registers, line: bytes) -> str:
    kind, key, expected, value = map(int, line.split())
    try:
        if kind == 0:
            await group.read_barrier()
            return f"ok {registers.values[key]}"
        return f"ok {await group.propose(COMMAND.pack(kind, key, expected, value))}"
    except (*NOTHING_HAPPENED, *NOTHING_HAPPENED_LATER):
        return "no"
    except ProposalUncertainError:
        return "unknown"


async def main(settings: dict[str, Any]) -> None:
    server: int = settings["server"]
    ports = {int(key): port for key, port in settings["ports"].items()}
    logs = RaftLogs.open(
        RealDisk(), Path(settings["directory"]), os.urandom, segment_bytes_max=64 << 10
    )
    _natsd, transport = await start_server(server, ports)
    options = HostOptions(tick_s=0.05, limits=LIMITS, quiesce_ticks=5)
    loop = asyncio.get_running_loop()
    host = RaftHost(server, logs, transport, random.SystemRandom().randrange, options, loop)
    host.start()
    registers = Registers()
    voters = [member_id(each) for each in ports]
    group = await host.start_group("r", member_id(server), registers, first_voters=voters)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write((await answer(group, registers, line)).encode() + b"\n")
        writer.close()

    await asyncio.start_server(serve, "127.0.0.1", settings["client_port"])
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
