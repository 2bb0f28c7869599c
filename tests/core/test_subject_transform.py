"""Subjects are mapped as by nats-server's `subjectTransform`, whose results are expected."""

from __future__ import annotations

import pytest

from natsd.core.routing import SubjectTransform
from natsd.core.subject_mapping import InvalidMapping

MAPPED = [
    ("", ">", "a.b", "a.b"),
    (">", "x.>", "a.b", "x.a.b"),
    ("a.>", "b.>", "a.1.2.3", "b.1.2.3"),
    ("a.>", "b.c.>", "x.1", None),
    ("a", "b", "a", "b"),
    ("a.*.*", "b.$2.$1", "a.x.y", "b.y.x"),
    ("a.*.*", "b.{{wildcard(2)}}.{{ Wildcard( 1 ) }}", "a.x.y", "b.y.x"),
    ("a.*.>", "b.$1.>", "a.x.y.z", "b.x.y.z"),
    ("a.*", "b.$1.$x.$", "a.x", "b.x.$x.$"),
    ("*.bar.*", "p.{{partition(10,1,2)}}", "foo.bar.baz", "p.8"),
    ("*", "{{partition(10)}}.$1", "foo", "3.foo"),
    ("a", "{{partition(10)}}", "a", "0"),
    ("*", "{{partition(0,1)}}", "foo", "0"),
    ("*", "{{splitfromleft(1,3)}}", "12345", "123.45"),
    ("*", "{{SplitFromRight(1,3)}}", "12345", "12.345"),
    ("*", "{{splitFromLeft(1,9)}}", "12345", "12345"),
    ("*", "{{slicefromleft(1,2)}}", "12345", "12.34.5"),
    ("*", "{{SliceFromRight(1, 2)}}", "12345", "1.23.45"),
    ("*", "{{split(1,-)}}", "-a--b-", "a.b"),
    ("*", "{{left(1,2)}}.{{right(1,2)}}", "12345", "12.45"),
    ("*", "{{left(1,9)}}", "12345", "12345"),
    ("*", "{{random(1)}}", "x", "0"),
    ("a.*", "b.$1", "a..b", None),
    ("a.*", "b.$1", "a.*", None),
]


@pytest.mark.parametrize(("source", "destination", "subject", "expected"), MAPPED)
def test_mappings(source: str, destination: str, subject: str, expected: str | None) -> None:
    assert SubjectTransform(source, destination).map(subject) == expected


INVALID = "invalid mapping destination: "
REFUSED = [
    ("a..b", "c", "invalid subject"),
    ("a", "", "invalid subject"),
    ("a.*", "b.*", "invalid subject"),
    ("a.>", "b", "invalid subject"),
    ("a", "b.>", "invalid subject"),
    ("a.*", "b.$2", INVALID + "wildcard index out of range in $2: [2]"),
    ("a", "b.$1", INVALID + "wildcard index out of range in $1"),
    ("a.*", "b.{{wild(1)}}", INVALID + "unknown function in {{wild(1)}}"),
    ("a.*", "{{wildcard()}}", INVALID + "not enough arguments passed to the function in {{wild"),
    ("a.*", "{{wildcard(1,2)}}", INVALID + "too many arguments passed to the function in {{wild"),
    ("a.*", "{{wildcard(x)}}", INVALID + "function argument is invalid or in the wrong format"),
    ("a.*", f"{{{{wildcard({'0' * 5000})}}}}", INVALID + "function argument is invalid or in the"),
    ("a.*", f"{{{{wildcard({'9' * 5000})}}}}", INVALID + "function argument is invalid or in the"),
    ("a.*", "{{left(1)}}", INVALID + "not enough arguments passed to the function in {{left(1)}}"),
    ("a.*", "{{split(1,x y)}}", INVALID + "function argument is invalid or in the wrong format"),
    ("a.*", "{{partition(x,1)}}", INVALID + "function argument is invalid or in the wrong format"),
]


@pytest.mark.parametrize(("source", "destination", "text"), REFUSED)
def test_what_is_no_mapping(source: str, destination: str, text: str) -> None:
    with pytest.raises(InvalidMapping) as refused:
        SubjectTransform(source, destination)
    assert str(refused.value).startswith(text)


@pytest.mark.parametrize(
    ("source", "destination", "subject", "expected"),
    [
        ("JS.HUB.>", "$JS.>", b"JS.HUB.C.a.>", b"$JS.C.a.>"),
        ("JS.HUB.*.>", "$JS.$1.>", b"JS.HUB.*.a.*", b"$JS.*.a.*"),
        ("", ">", b"a.*", b"a.*"),
        ("JS.HUB.>", "$JS.>", b"JS.X.a.>", None),
        ("JS.HUB.>", "$JS.>", b"JS.HUB.a..b", None),
        ("JS.HUB.>", "$JS.>", b"JS.HUB.>.b", None),
    ],
)
def test_wildcards_are_words_like_others(
    source: str, destination: str, subject: bytes, expected: bytes | None
) -> None:
    """In requests of JetStream's API that name a filter; elsewhere they are not mapped."""
    transform = SubjectTransform(source, destination)
    assert transform.map_words(subject) == expected
    if source:
        assert transform.map(subject) is None
