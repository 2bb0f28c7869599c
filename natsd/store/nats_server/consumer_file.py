"""The file `o.dat` of nats-server: what a consumer has delivered and what was acknowledged.

    0 magic 22 · 1 version 2 · then varints:
    ack floor: consumer, stream · delivered: consumer, stream
    pending      number, and if it is not 0: a time in seconds (signed); for each message: stream
                 sequence above the floor · consumer sequence above the floor · seconds before that
                 time (signed)
    redelivered  number; for each message: stream sequence above the floor · deliveries after the
                 first

Version 1 has no consumer sequences of pending messages, and counts deliveries from the floor.
There is no checksum: a damaged number that is possible is not noticed, as on nats-server.

Source: nats-server's `encodeConsumerState`, `decodeConsumerState`.
"""

from collections.abc import Iterator
from typing import Final

from natsd.store.consumer.consumer_state import ConsumerState, Pending, SequencePair
from natsd.store.errors import DamagedEncoding

MAGIC: Final = 22
VERSION: Final = 2
_SECOND_NS: Final = 1_000_000_000
_LIMIT: Final = 1 << 63


def decode_consumer(data: bytes) -> ConsumerState:
    """Return the state; nanoseconds are whole seconds. Raises DamagedEncoding."""
    if len(data) < 2 or data[0] != MAGIC or data[1] not in (1, VERSION):
        raise DamagedEncoding("it is of no known version")
    numbers, version = _varints(data), data[1]
    try:
        floor = SequencePair(next(numbers), next(numbers))
        delivered = SequencePair(next(numbers), next(numbers))
        if version == 1:
            delivered = SequencePair(
                delivered.consumer + max(floor.consumer - 1, 0),
                delivered.stream + max(floor.stream - 1, 0),
            )
        if max(floor.stream, delivered.stream) >= _LIMIT:
            raise DamagedEncoding("its sequences are impossible")
        pending = _pending(numbers, floor, version)
        redelivered = {floor.stream + next(numbers): next(numbers) for _ in range(next(numbers))}
    except (StopIteration, RuntimeError):  # a generator turns StopIteration into RuntimeError
        raise DamagedEncoding("it ends too early") from None
    redelivered = {sequence: count for sequence, count in redelivered.items() if count}
    return ConsumerState(delivered, floor, pending, redelivered)


def encode_consumer(state: ConsumerState, now_s: int) -> bytes:
    """Return the file for a state; `now_s` are seconds since 1970."""
    floor = state.ack_floor
    numbers = [floor.consumer, floor.stream, state.delivered.consumer, state.delivered.stream]
    numbers.append(len(state.pending))
    if state.pending:
        numbers.append(_zigzag(now_s))
    for sequence, pending in state.pending.items():
        seconds = now_s - pending.time_ns // _SECOND_NS
        numbers += (sequence - floor.stream, pending.sequence - floor.consumer, _zigzag(seconds))
    counted = {key: count for key, count in state.redelivered.items() if key > floor.stream}
    numbers.append(len(counted))
    for sequence, count in counted.items():
        numbers += (sequence - floor.stream, count)
    return bytes((MAGIC, VERSION)) + b"".join(map(_varint, numbers))


def _pending(numbers: Iterator[int], floor: SequencePair, version: int) -> dict[int, Pending]:
    result: dict[int, Pending] = {}
    count = next(numbers)
    base_s = _signed(next(numbers)) if count else 0
    for number in range(count):
        stream = floor.stream + next(numbers)
        if version == 1:
            consumer, time_s = floor.consumer + number + 1, base_s + _signed(next(numbers))
        else:
            consumer, time_s = floor.consumer + next(numbers), base_s - _signed(next(numbers))
        result[stream] = Pending(consumer, time_s * _SECOND_NS)
    return result


def _varints(data: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in data[2:]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value & 0xFFFFFFFFFFFFFFFF
            value = shift = 0


def _varint(value: int) -> bytes:
    result = bytearray()
    while value >= 0x80:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)


def _signed(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1
