"""Subjects: what the compiled functions say of two of them is what lists of tokens say.

Input: a subject, a newline, another subject. Reference: §3.6.
"""

from natsd.core import subject

MODULES = ["natsd.core.subject"]
SEEDS = [
    b"foo.bar\nfoo.*",
    b"foo.bar.baz\nfoo.>",
    b"*.bar\nfoo.>",
    b"foo..bar\nfoo.*.bar",
    b".foo\n>",
    b"foo.\nfoo.>",
    b"foo.>.bar\nfoo.*.bar",
    b"foo*.b>r\nfoo*.*",
    b"\n>",
    b"foo bar\t\nfoo bar",
    b"a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p\n*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.>",
    b"\xff.\x00\n\xff.*",
]
WHITESPACE = b" \t\n\f\r"
WILDCARDS = (b"*", b">")


def check(data: bytes) -> None:
    one, _, other = data.partition(b"\n")
    for text in (one, other):
        tokens = text.split(b".")
        literal = not any(token in WILDCARDS for token in tokens)
        valid = (
            all(tokens) and b">" not in tokens[:-1] and not any(byte in WHITESPACE for byte in text)
        )
        assert subject.is_valid(text) == valid
        assert subject.is_literal(text) == literal
        assert subject.is_valid_literal(text) == (literal and all(tokens))
        assert subject.is_valid_publish(text) == (valid and literal)
        assert subject.token_count(text) == (len(tokens) if text else 0)
    assert subject.matches(one, other) == reaches(one.split(b"."), other.split(b"."))
    if subject.is_valid(one) and subject.is_valid(other):
        check_wildcards(one, other)


def reaches(have: list[bytes], want: list[bytes]) -> bool:
    """A message published to `have` reaches a subscription to `want`."""
    if not all(have) or not all(want):
        return False
    if want[-1] == b">":
        return len(have) >= len(want) and fits(have[: len(want) - 1], want[:-1])
    return len(have) == len(want) and fits(have, want)


def fits(have: list[bytes], want: list[bytes]) -> bool:
    return all(wanted in (b"*", token) for token, wanted in zip(have, want, strict=True))


def check_wildcards(one: bytes, other: bytes) -> None:
    """Whatever reaches both makes them collide; a subset receives nothing the whole does not."""
    assert subject.collide(one, other) == subject.collide(other, one)
    assert subject.is_subset(one, one)
    assert subject.collide(one, one)
    if subject.is_subset(one, other):
        assert subject.collide(one, other)
    example = one.replace(b"*", b"x").replace(b">", b"y")
    if subject.is_literal(example) and subject.matches(example, one):
        if subject.is_subset(one, other):
            assert subject.matches(example, other)
        if subject.matches(example, other):
            assert subject.collide(one, other)
