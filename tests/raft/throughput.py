"""Entries a second through three nodes in one process, without disk and network.

python -m tests.raft.throughput [--codec]
"""

import argparse
import random
import sys
import time

from natsd.raft.effects import Effects
from natsd.raft.entry import NOBODY, HardState, Snapshot, first_snapshot
from natsd.raft.frames import MessageEncoder, decode
from natsd.raft.messages import Message
from natsd.raft.node import Node
from natsd.raft.options import Options

BATCH = 200
SECONDS = 3.0
DATA = b"x" * 128


class Trio:
    """Three nodes whose messages arrive and whose writes are synced at once."""

    def __init__(self, with_codec: bool) -> None:
        start = first_snapshot(frozenset({1, 2, 3}))
        state = HardState(0, NOBODY)
        self.nodes = {
            member: Node(member, state, start, (), Options(), random.Random(member).randrange)
            for member in (1, 2, 3)
        }
        self.applied = dict.fromkeys(self.nodes, 0)
        self.encoders = {member: MessageEncoder() for member in self.nodes}
        self.with_codec = with_codec

    def elect(self) -> Node:
        while not any(node.is_leader for node in self.nodes.values()):
            for node in self.nodes.values():
                node.tick()
            self.turn()
        return next(node for node in self.nodes.values() if node.is_leader)

    def turn(self) -> None:
        """Carry effects out until nothing is left to do."""
        while any(node.has_effects for node in self.nodes.values()):
            for member, node in self.nodes.items():
                if node.has_effects:
                    self.carry_out(member, node.take_effects())

    def carry_out(self, member: int, effects: Effects) -> None:
        self.deliver(member, effects.messages)
        if effects.writes:
            self.nodes[member].persisted(effects.number)
        self.deliver(member, effects.messages_after_sync)
        self.applied[member] += len(effects.committed)

    def deliver(self, member: int, messages: tuple[Message, ...]) -> None:
        for message in messages:
            if self.with_codec:
                message = decode(b"".join(self.encoders[member].encode(message)))
            self.nodes[message.receiver].step(message)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--codec", action="store_true", help="encode and decode each message")
    trio = Trio(parser.parse_args().codec)
    leader = trio.elect()
    began = time.perf_counter()
    count = 0
    while time.perf_counter() - began < SECONDS:
        for _ in range(BATCH):
            leader.propose(DATA)
        trio.turn()
        count += BATCH
        if count % (BATCH * 100) == 0:
            for node in trio.nodes.values():
                log = node.log
                term = log.term_at(log.handed_out)
                assert term is not None
                node.compact(Snapshot(log.handed_out, term, node.membership, b""))
    elapsed_s = time.perf_counter() - began
    assert min(trio.applied.values()) >= count
    sys.stdout.write(
        f"{count / elapsed_s:,.0f} entries/s, {elapsed_s / count * 1e6:.2f} µs for all three\n"
    )


if __name__ == "__main__":
    main()
