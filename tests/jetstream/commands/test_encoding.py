"""The encoding of commands: each is decoded to itself, and other bytes are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.jetstream.commands import commands as c
from natsd.jetstream.commands.commands import Command, Runs
from natsd.jetstream.commands.encoding import KINDS, VERSION, UnknownCommand, decode, encode
from natsd.jetstream.stream.publishing import encode_publish

numbers = st.integers(0, (1 << 64) - 1)
times = st.integers(-(1 << 62), (1 << 62))
texts = st.text(st.characters(codec="utf-8"), max_size=20)
sequences = st.sets(st.integers(1, 500) | st.integers(1 << 40, (1 << 40) + 50), max_size=40)


def runs_of(chosen: set[int]) -> Runs:
    runs: list[tuple[int, int]] = []
    for sequence in sorted(chosen):
        if runs and runs[-1][1] == sequence - 1:
            runs[-1] = (runs[-1][0], sequence)
        else:
            runs.append((sequence, sequence))
    return tuple(runs)


def values(name: str) -> st.SearchStrategy[Any]:
    if name == "removed":
        return sequences.map(runs_of)
    if name.startswith("is_"):
        return st.booleans()
    if name == "name":
        return texts
    if name in ("subject", "headers", "data", "message_id", "config", "body", "entries"):
        return st.binary(max_size=300)
    return times if name.endswith("_ns") else numbers


def commands_of(kind: type[Command]) -> st.SearchStrategy[Any]:
    return st.builds(kind, **{name: values(name) for name in kind.__struct_fields__})


SIMPLE = [kind for kind in KINDS.values() if kind is not c.PublishBatch]
simple = st.sampled_from(SIMPLE).flatmap(commands_of)
batches = st.lists(simple, max_size=4).map(lambda inner: c.PublishBatch(tuple(inner)))


@given(simple | batches)
def test_a_command_is_decoded_to_itself(command: Command) -> None:
    assert decode(encode(command)) == command


@given(commands_of(c.Publish))
def test_compiled_code_encodes_a_publish_alike(command: c.Publish) -> None:
    assert encode_publish(command) == encode(command)


@given(simple | batches, st.data())
def test_bytes_that_are_cut_off_or_left_over_are_refused(
    command: Command, data: st.DataObject
) -> None:
    encoded = encode(command)
    with pytest.raises(UnknownCommand):
        decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])
    with pytest.raises(UnknownCommand):
        decode(encoded + data.draw(st.binary(min_size=1, max_size=3)))


@given(st.binary(max_size=60), st.sampled_from(sorted(KINDS)))
def test_other_bytes_are_the_one_encoding_of_a_command_or_refused(noise: bytes, kind: int) -> None:
    encoded = bytes((VERSION, kind)) + noise
    try:
        command = decode(encoded)
    except UnknownCommand:
        return
    assert encode(command) == encoded


def test_the_layout_is_the_documented_one() -> None:
    command = c.Publish(
        sequence=300, time_ns=-1, subject=b"a", data=b"xyz", removed=((5, 5), (7, 9))
    )
    assert encode(command) == bytes(
        [1, 1, 0xAC, 2, 1, 1, ord("a"), 0, 3, *b"xyz", 0, 0, 0, 0, 2, 5, 0, 2, 2]
    )


@pytest.mark.parametrize(
    "encoded",
    [b"", b"\x02\x03\x01", b"\x01\x7f", b"\x01\x02\x01\x02\x02\x00", b"\x01\x03" + b"\xff" * 11],
    ids=["empty", "later version", "unknown kind", "batch in a batch", "long number"],
)
def test_what_is_no_command_is_refused(encoded: bytes) -> None:
    with pytest.raises(UnknownCommand):
        decode(encoded)


def test_each_command_has_one_kind() -> None:
    assert len(set(KINDS.values())) == len(KINDS)
