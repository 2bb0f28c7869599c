"""A record is read back as it was written, or not at all.

A header has its own checksum, so that a flipped length does not lose the records behind it.
Checksums are seeded per block, so that a payload cannot forge a record
(natsd/store/codec/record.pxd, docs/store.md).
"""

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from natsd.store.codec.records import StoredMessage, checksum, decode, encode, header_is_whole

SEED = 0x0123456789ABCDEF
HEADER_BYTES = 32
CHECKSUM_BYTES = 8
HEADERS = b"NATS/1.0\r\nNats-Msg-Id: 7\r\n\r\n"

subjects = st.text("abc.*>é☃ ", min_size=1, max_size=40)
messages = st.builds(
    StoredMessage,
    st.integers(0, 2**64 - 1),
    subjects,
    st.none() | st.binary(min_size=1, max_size=60),
    st.binary(max_size=300),
    st.integers(-(2**63), 2**63 - 1),
    st.just(0) | st.integers(1, 2**63 - 1),
)


def encoded(message: StoredMessage, seed: int = SEED) -> bytes:
    return encode(
        seed,
        message.sequence,
        message.subject,
        message.headers,
        message.data,
        message.time_ns,
        message.expires_ns,
    )


def with_flipped_bit(data: bytes, bit: int) -> bytes:
    flipped = bytearray(data)
    flipped[bit // 8] ^= 1 << (bit % 8)
    return bytes(flipped)


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32, 2**63, 2**64 - 1, SEED])
def test_xxh64_of_every_length(seed: int) -> None:
    data = bytes((7 * at + at // 256) & 0xFF for at in range(600))
    for length in range(len(data)):
        assert checksum(data[:length], seed) == xxhash.xxh64_intdigest(data[:length], seed)


@given(st.binary(max_size=2000), st.integers(0, 2**64 - 1))
def test_xxh64_is_that_of_the_package(data: bytes, seed: int) -> None:
    assert checksum(data, seed) == xxhash.xxh64_intdigest(data, seed)


def test_layout() -> None:
    record = encode(SEED, 0x1122, "a.b", HEADERS, b"payload", 0x3344, 0x5566)
    body = b"a.b" + HEADERS + b"payload"
    head = b"".join(
        [
            (32 + 8 + len(body) + 8).to_bytes(4, "little"),
            bytes([1, 1]),  # kind: a message; flags: it has an expiry
            (3).to_bytes(2, "little"),
            (0x1122).to_bytes(8, "little"),
            (0x3344).to_bytes(8, "little"),
            len(HEADERS).to_bytes(4, "little"),
        ]
    )
    head += (xxhash.xxh64_intdigest(head, SEED) & 0xFFFFFFFF).to_bytes(4, "little")
    whole = head + (0x5566).to_bytes(8, "little") + body
    assert record == whole + xxhash.xxh64_intdigest(whole, SEED).to_bytes(8, "little")


@given(messages)
def test_what_is_written_is_read(message: StoredMessage) -> None:
    record = encoded(message)
    assert header_is_whole(record, SEED)
    assert decode(record, SEED) == message
    assert decode(record + b"what follows", SEED) == message


def test_no_headers_are_none() -> None:
    read = decode(encode(SEED, 1, "a", b"", b"", 5), SEED)
    assert read == StoredMessage(1, "a", None, b"", 5)


@pytest.mark.parametrize("expires_ns", [0, 99])
@pytest.mark.parametrize("headers", [None, HEADERS])
def test_every_flipped_bit_is_noticed(headers: bytes | None, expires_ns: int) -> None:
    record = encode(SEED, 41, "orders.new", headers, b"x" * 40, 1_700_000_000, expires_ns)
    for bit in range(len(record) * 8):
        damaged = with_flipped_bit(record, bit)
        assert header_is_whole(damaged, SEED) == (bit >= HEADER_BYTES * 8)
        assert decode(damaged, SEED) is None


def test_every_length_but_its_own_is_too_short() -> None:
    record = encode(SEED, 41, "orders.new", HEADERS, b"x" * 40, 1_700_000_000)
    for length in range(len(record)):
        assert decode(record[:length], SEED) is None
        assert header_is_whole(record[:length], SEED) == (length >= HEADER_BYTES)


@given(messages, st.integers(0, 2**64 - 1))
def test_another_seed_reads_nothing(message: StoredMessage, seed: int) -> None:
    read = decode(encoded(message), seed)
    assert read == (message if seed == SEED else None)


@given(st.binary(max_size=200), st.integers(0, 2**64 - 1))
def test_garbage_is_no_message(data: bytes, seed: int) -> None:
    assert decode(data, seed) is None


def test_a_message_repeats_itself() -> None:
    message = StoredMessage(7, "a.b", None, b"data", 12)
    assert repr(message) == "StoredMessage(7, 'a.b', None, b'data', 12)"
    assert message != StoredMessage(7, "a.b", b"h", b"data", 12)
    assert message != "message"
    assert len({message, StoredMessage(7, "a.b", None, b"data", 12)}) == 1


def test_a_subject_that_does_not_fit_is_refused() -> None:
    assert decode(encode(SEED, 1, b"s" * 65_535, None, b"", 1), SEED) is not None
    with pytest.raises(ValueError, match="65536"):
        encode(SEED, 1, b"s" * 65_536, None, b"", 1)
