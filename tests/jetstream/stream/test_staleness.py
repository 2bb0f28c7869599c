"""How old the state of a read replica may be."""

from __future__ import annotations

from natsd.jetstream.stream.staleness import Staleness


def test_the_age_is_that_of_the_last_proof_and_is_rounded_up() -> None:
    now_s = 100.0
    staleness = Staleness(lambda: now_s)
    staleness.proven(99.5)
    assert staleness.line() == b"Natsd-Staleness: 0.500s\r\n"
    now_s = 101.0001
    assert staleness.line() == b"Natsd-Staleness: 1.501s\r\n"
    staleness.proven(101.0)
    assert staleness.line() == b"Natsd-Staleness: 0.001s\r\n"


def test_an_answer_that_takes_a_while_is_as_old_as_its_beginning() -> None:
    now_s = 100.0
    staleness = Staleness(lambda: now_s)
    staleness.proven(99.0)
    line = staleness.pinned()
    now_s = 110.0
    staleness.proven(110.0)
    assert line() == b"Natsd-Staleness: 11.000s\r\n"
    assert staleness.line() == b"Natsd-Staleness: 0.000s\r\n"
