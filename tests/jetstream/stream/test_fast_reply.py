"""The fields of a fast batch's reply subject (ADR-50), against a model that splits the subject."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from natsd.jetstream.stream.publishing import fast_reply

START, APPEND, _, COMMIT_BEFORE, _ = range(5)
NUMBER_LAST = 2**64 - 2


def number(text: bytes) -> int | None:
    found = int(text) if text and set(text) <= set(b"0123456789") else None
    return found if found is not None and found <= NUMBER_LAST else None


def plain_reply(reply: bytes) -> tuple[bytes, int, int, bool, int] | None:
    if not reply.endswith(b".$FI"):
        return None
    tokens = reply.removesuffix(b".$FI").rsplit(b".", 5)
    if len(tokens) < 6:
        return None
    _, batch_id, flow, gaps, sequence_text, operation_text = tokens
    sequence, operation = number(sequence_text), number(operation_text)
    if not sequence or operation is None or operation > 4 or gaps not in (b"ok", b"fail"):
        return None
    if operation == START and sequence != 1:
        return None
    if operation in (APPEND, COMMIT_BEFORE) and sequence == 1:
        return None
    return batch_id, min(number(flow) or 10, 65_535), sequence, gaps == b"ok", operation


tokens = st.sampled_from(
    [b"0", b"1", b"2", b"3", b"4", b"5", b"", b"10", b"70000", b"ok", b"fail", b"x", b"01"]
    + [b"%d" % (2**64 + more) for more in (-2, -1, 0)]
)
subjects = st.lists(tokens, max_size=8).map(lambda each: b".".join([*each, b"$FI"]))


@given(st.one_of(subjects, st.binary(max_size=40).map(lambda data: data + b".$FI"), st.binary()))
@example(b"inbox.id.10.fail.1.0.$FI")
@example(b".$FI")
def test_read_from_its_end(reply: bytes) -> None:
    assert fast_reply(reply) == plain_reply(reply)


def test_examples() -> None:
    assert fast_reply(b"_INBOX.a.b.id.100.ok.7.1.$FI") == (b"id", 100, 7, True, 1)
    assert fast_reply(b"_INBOX.id.0.fail.1.0.$FI") == (b"id", 10, 1, False, 0)
    assert fast_reply(b"id.0.fail.1.0.$FI") is None
