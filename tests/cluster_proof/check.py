"""Compares what clients were promised with what is stored. Each check yields a line per problem.

lost          an acknowledged message is not there, or not at its sequence
phantom       a message is there that nobody published, or was delivered and is not there
twice         a message is there twice
gap           a sequence has no message
order         a publish began after another one was acknowledged, and is stored before it
replicas      two replicas differ
undelivered   a stored message was not delivered
keys          compare-and-set: a write replaced another revision than the one it expected
dirty         a value of a key was read that is not stored
linearizable  no order of the operations on a key explains what clients saw
aged          a read replica lacked what was acknowledged longer ago than its answer said
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.cluster_proof.journal import Journal, KeyWrite, Publish, id_in, payload_of
from tests.cluster_proof.key_value import NO_VALUE, SUBJECT
from tests.cluster_proof.stored import Stored
from tests.sim.linearizability import FOREVER, Operation, Undecided, is_linearizable


def check_stream(journal: Journal, stored: Sequence[Stored]) -> Iterator[str]:
    """Check one replica of the stream."""
    payloads = {each.sequence: each.payload for each in stored}
    for publish in journal.acked:
        found = payloads.get(publish.sequence)
        if found != payload_of(publish.message_id):
            there = "nothing" if found is None else id_in(found)
            yield f"lost: {publish.message_id} was acknowledged as {publish.sequence}: {there}"
    seen: dict[str, int] = {}
    for each in stored:
        message_id = id_in(each.payload)
        if message_id not in journal.publishes or each.payload != payload_of(message_id):
            yield f"phantom: {each.sequence} is {each.payload[:40]!r}"
        elif message_id in seen:
            yield f"twice: {message_id} is {seen[message_id]} and {each.sequence}"
        seen[message_id] = each.sequence
    yield from _gaps([each.sequence for each in stored])
    yield from _order(journal, seen)


def _gaps(sequences: Sequence[int]) -> Iterator[str]:
    expected = 1
    for sequence in sequences:
        if sequence != expected:
            yield (
                f"gap: {expected} to {sequence - 1}"
                if sequence > expected
                else (f"order: {sequence} comes behind {expected - 1}")
            )
        expected = sequence + 1


def _order(journal: Journal, sequences: Mapping[str, int]) -> Iterator[str]:
    """Check that what was acknowledged first has the lower sequence."""
    latest: Publish | None = None
    for message_id in sorted(sequences, key=lambda each: sequences[each]):
        publish = journal.publishes.get(message_id)
        if publish is None:
            continue
        if latest is not None and publish.acked_ns and publish.acked_ns < latest.called_ns:
            yield (
                f"order: {message_id} ({sequences[message_id]}) was acknowledged before "
                f"{latest.message_id} ({sequences[latest.message_id]}) was published"
            )
        if latest is None or publish.called_ns > latest.called_ns:
            latest = publish


def check_replicas(replicas: Mapping[str, Sequence[Stored]]) -> Iterator[str]:
    """Check that all replicas have the same."""
    first, *others = replicas
    for other in others:
        if replicas[other] == replicas[first]:
            continue
        differing = set(replicas[first]) ^ set(replicas[other])
        sequences = sorted({each.sequence for each in differing})[:5]
        yield f"replicas: {first} and {other} differ at {sequences}"


def check_deliveries(journal: Journal, stored: Sequence[Stored]) -> Iterator[str]:
    """Check that the consumer delivered each stored message, and nothing else."""
    payloads = {each.sequence: each.payload for each in stored}
    for delivery in journal.deliveries:
        if payloads.get(delivery.sequence) != delivery.payload:
            yield f"phantom: {id_in(delivery.payload)} was delivered as {delivery.sequence}"
    delivered = {delivery.sequence for delivery in journal.deliveries}
    for sequence in sorted(payloads.keys() - delivered):
        yield f"undelivered: {sequence} ({id_in(payloads[sequence])})"


def delivered_again(journal: Journal) -> int:
    """Return how many deliveries came after the message's ack was confirmed."""
    confirmed = journal.confirmed_ns
    return sum(each.at_ns > confirmed.get(each.sequence, FOREVER) for each in journal.deliveries)


def check_aged_reads(journal: Journal) -> Iterator[str]:
    """Check that answers of read replicas are no older than they said."""
    acked = sorted(journal.acked, key=lambda each: each.acked_ns)
    last, at = dict[str, Publish](), 0
    for read in sorted(journal.aged_reads, key=lambda each: each.called_ns - each.age_ns):
        moment_ns = read.called_ns - read.age_ns
        while at < len(acked) and acked[at].acked_ns < moment_ns:
            publish = acked[at]
            name = publish.message_id.rpartition("-")[0]
            if name not in last or publish.sequence > last[name].sequence:
                last[name] = publish
            at += 1
        known = last.get(read.publisher)
        if known is not None and read.sequence < known.sequence:
            yield (
                f"aged: {known.message_id} ({known.sequence}) was acknowledged before "
                f"the moment to which {read.sequence} was said to be the last of its subject"
            )


def check_keys(journal: Journal, stored: Sequence[Stored]) -> Iterator[str]:
    """Check compare-and-set: each write has replaced the revision that it expected."""
    writes = {write.value: write for write in journal.key_writes}
    revisions = {each.sequence: int(each.payload) for each in stored}
    last: dict[str, int] = {}
    for each in stored:
        write, key = writes.get(int(each.payload)), each.subject.removeprefix(f"{SUBJECT}.")
        if write is None or write.key != key:
            yield f"phantom: revision {each.sequence} of {key} is {each.payload!r}"
        elif write.is_refused:
            yield f"keys: revision {each.sequence} of {key} was refused"
        elif write.expected_revision != last.get(key, 0):
            yield (
                f"keys: revision {each.sequence} of {key} has replaced {last.get(key, 0)}, "
                f"and expected {write.expected_revision}"
            )
        last[key] = each.sequence
    for write in journal.key_writes:
        if write.revision and revisions.get(write.revision) != write.value:
            yield f"lost: {write.key} was {write.value} at revision {write.revision}"
    for key, reads in sorted(journal.key_reads.items()):
        for dirty in sorted({read.value for read in reads} - set(revisions.values())):
            yield f"dirty: {key} was read as {dirty}, which is not stored"
    for key in sorted(last):
        yield from _linearizable(key, key_operations(journal.key_writes, key))


def check_key_reads(journal: Journal) -> Iterator[str]:
    """Check that reads, too, are linearizable: a leader that was replaced serves none."""
    for key, reads in sorted(journal.key_reads.items()):
        yield from _linearizable(key, key_operations(journal.key_writes, key) + reads)


def key_operations(writes: Iterable[KeyWrite], key: str) -> list[Operation]:
    """Return the writes of a key as operations of a register; refused ones changed nothing."""
    return [
        Operation(
            write.called_ns,
            write.returned_ns or FOREVER,
            "cas",
            write.expected_value,
            write.value,
            write.expected_value,
        )
        for write in writes
        if write.key == key and not write.is_refused
    ]


def _linearizable(key: str, operations: list[Operation]) -> Iterator[str]:
    try:
        if not is_linearizable(operations, NO_VALUE):
            yield f"linearizable: no order explains what clients saw of {key}"
    except Undecided:
        yield f"linearizable: undecided for {key} ({len(operations)} operations)"
