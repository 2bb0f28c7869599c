"""Acknowledgements on the wire (ADR-15, nats-server's `processAck`)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.jetstream.consumer.requests import nak_delay, parse_ack

V1 = b"$JS.ACK.S.C.1.7.5.1700000000000000000.3"
V2 = b"$JS.ACK._.hash1234.S.C.1.7.5.1700000000000000000.3"


@pytest.mark.parametrize("subject", [V1, V2, V2 + b".token", V2 + b".token.more@there"])
def test_both_forms_of_the_subject(subject: bytes) -> None:
    assert parse_ack(subject, b"") == ("ack", b"S", b"C", 1, 7, 5, b"")


@pytest.mark.parametrize(
    "subject",
    [
        b"",
        b"$JS.ACK.",
        b"$JS.ACK",
        b"foo.bar.S.C.1.7.5.1.3",
        b"$JS.ACK.S.C.1.7.5.1",
        b"$JS.ACK.S.C.1.7.5.1.3.4",  # neither 9 nor 11 tokens
        b"$JS.NAK.S.C.1.7.5.1.3",
    ],
)
def test_other_subjects_are_none(subject: bytes) -> None:
    assert parse_ack(subject, b"") is None


@pytest.mark.parametrize("number", [b"", b"-1", b"x", b"1x", b"+1", b"9" * 19, b"9" * 400, b" 1"])
def test_what_is_no_number_is_told_apart(number: bytes) -> None:
    parsed = parse_ack(b"$JS.ACK.S.C.%b.%b.%b.1.3" % (number, number, number), b"")
    assert parsed == ("ack", b"S", b"C", None, None, None, b"")


@pytest.mark.parametrize(
    ("body", "kind", "argument"),
    [
        (b"", "ack", b""),
        (b"+ACK", "ack", b""),
        (b"+OK", "ack", b""),
        (b"+ACK ", "other", b" "),
        (b"+ack", "other", b""),
        (b"-NAK", "nak", b""),
        (b'-NAK {"delay": 5}', "nak", b' {"delay": 5}'),
        (b"-NAKfoo", "nak", b"foo"),
        (b"+WPI", "progress", b""),
        (b"+WPI2", "other", b"2"),
        (b"+NXT", "next", b""),
        (b"+NXT 5", "next", b" 5"),
        (b'+NXT {"batch":5}', "next", b' {"batch":5}'),
        (b"+TERM", "term", b""),
        (b"+TERM it is broken", "term", b" it is broken"),
        (b"+TER", "other", b""),
        (b"anything", "other", b"hing"),
        (b"x", "other", b""),
    ],
)
def test_bodies(body: bytes, kind: str, argument: bytes) -> None:
    parsed = parse_ack(V1, body)
    assert parsed is not None
    assert (parsed[0], parsed[6]) == (kind, argument)


@pytest.mark.parametrize(
    ("argument", "delay_ns"),
    [
        (b"", None),
        (b"  ", None),
        (b' {"delay":1500000000}', 1_500_000_000),
        (b' { "delay" : 5 } ', 5),
        (b'{"delay":-5}', -5),
        (b'{"DELAY":5}', 5),
        (b'{"delay":5,"other":[1,{"delay":7}]}', 5),
        (b'{"delay":null}', 0),
        (b"{}", 0),
        (b'{"delay":"5s"}', None),
        (b'{"delay":1.5}', None),
        (b'{"delay":5', None),
        (b'{"delay":' + b"9" * 30 + b"}", None),
        (b" 5s", 5_000_000_000),
        (b"1m30s", 90_000_000_000),
        (b"-2ms", -2_000_000),
        (b"5", None),
        (b"soon", None),
        (b"\xff\xfe", None),
        (b"1" * 1000 + b"s", None),
    ],
)
def test_delays_of_a_nak(argument: bytes, delay_ns: int | None) -> None:
    assert nak_delay(argument) == delay_ns


@given(st.binary(max_size=80), st.binary(max_size=40))
def test_any_bytes_are_read(subject: bytes, body: bytes) -> None:
    parse_ack(subject, body)
    parse_ack(V1[:8] + subject, body)
    nak_delay(body)
