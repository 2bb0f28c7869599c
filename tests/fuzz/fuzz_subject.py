"""Subjects: the compiled functions agree with the readable model about any two subjects.

Input: a subject, a newline, another subject. nats-server's counterparts are `SubjectsCollide` and
`subjectIsSubsetMatch`.
"""

from natsd.core import routing as subject
from tests.core import naive

MODULES = ["natsd.core.routing"]
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


def check(data: bytes) -> None:
    one, _, other = (part.decode("utf-8", "surrogateescape") for part in data.partition(b"\n"))
    for text in (one, other):
        assert subject.is_valid(text) == naive.is_valid(text)
        assert subject.is_literal(text) == naive.is_literal(text)
        assert subject.is_valid_publish(text) == (naive.is_valid(text) and naive.is_literal(text))
        assert subject.token_count(text) == (len(naive.tokens(text)) if text else 0)
        for index, token in enumerate(naive.tokens(text), 1):
            assert subject.token_at(text, index) == token
    if naive.is_valid(other):
        assert subject.matches(one, other) == naive.matches(one, other)
    if naive.is_valid(one) and naive.is_valid(other):
        check_wildcards(one, other)


def check_wildcards(one: str, other: str) -> None:
    """Two patterns with a common subject collide; a subset matches no subject outside the whole."""
    collide = naive.collide(one, other)
    assert subject.collide(one, other) == collide
    assert subject.collide(other, one) == collide
    assert subject.is_subset(one, one)
    if subject.is_subset(one, other):
        assert collide
        example = one.replace("*", "x").replace(">", "y")
        if naive.matches(example, one):
            assert naive.matches(example, other)
