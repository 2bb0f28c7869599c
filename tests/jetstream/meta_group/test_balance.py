"""Which leaders a server hands over."""

import msgspec

from natsd.jetstream.meta_group.assignments import Assignment
from natsd.jetstream.meta_group.balance import to_hand_over


def stream(name: str, first: str) -> Assignment:
    return Assignment("$G", name, msgspec.Raw(b"{}"), 1, (first, "x", "y"), group=name)


LED = [stream("A", "n1"), stream("B", "n2"), stream("C", "n3"), stream("D", "n2")]


def names(share: int, absent: str = "") -> list[str]:
    found = to_hand_over("n1", LED, share, lambda each: each.servers[0] != absent)
    return [each.name for each in found]


def test_what_is_beyond_the_share_goes_to_the_servers_that_come_first() -> None:
    assert names(share=2) == ["B", "C"]
    assert names(share=1) == ["B", "C", "D"]


def test_nothing_is_moved_without_need() -> None:
    assert names(share=4) == []
    assert names(share=5) == []


def test_servers_that_lack_something_get_nothing() -> None:
    assert names(share=1, absent="n2") == ["C"]
    assert names(share=0) == ["B", "C", "D"], "what should be led here stays"
