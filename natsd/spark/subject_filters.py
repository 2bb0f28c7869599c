"""Simplification and intersection of sets of subject patterns.

A set is a tuple of patterns; a subject is in the set if it matches one of them. The empty tuple
means all subjects, as in a consumer's filter; None means no subject.

Two patterns intersect in at most one pattern, which is built token by token: a literal and `*` give
the literal, `>` and the rest of the other pattern give that rest.
"""

from __future__ import annotations

from natsd.core.routing import collide, is_subset

Patterns = tuple[str, ...]


def simplified(patterns: Patterns) -> Patterns:
    """Return the set without patterns that another pattern covers.

    Raises ValueError if two patterns overlap partly.
    """
    kept: list[str] = []
    for pattern in dict.fromkeys(patterns):
        if any(is_subset(pattern, other) for other in kept):
            continue
        kept = [other for other in kept if not is_subset(other, pattern)]
        for other in kept:
            if collide(pattern, other):
                raise ValueError(
                    f'"{other}" and "{pattern}" overlap: a server refuses such filters'
                )
        kept.append(pattern)
    return () if ">" in kept else tuple(kept)


def in_common(first: Patterns, second: Patterns) -> Patterns | None:
    """Return the intersection of two sets; None: no subject is in both.

    Raises ValueError if patterns of the result overlap partly.
    """
    if not first or not second:
        return first or second
    found = [both for a in first for b in second if (both := intersection(a, b)) is not None]
    return simplified(tuple(found)) if found else None


def intersection(first: str, second: str) -> str | None:
    """Return the pattern of the subjects that match both patterns; None: there is none."""
    a, b = first.split("."), second.split(".")
    common: list[str] = []
    for index in range(max(len(a), len(b))):
        if index < len(a) and a[index] == ">" and index < len(b):
            return ".".join([*common, *b[index:]])
        if index < len(b) and b[index] == ">" and index < len(a):
            return ".".join([*common, *a[index:]])
        if index >= len(a) or index >= len(b):
            return None
        if a[index] != "*" and b[index] != "*" and a[index] != b[index]:
            return None
        common.append(b[index] if a[index] == "*" else a[index])
    return ".".join(common)
