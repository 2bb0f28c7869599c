"""Sets of subject patterns: simplified, and what two of them have in common.

A set is a tuple of patterns of which a subject must match one. The empty tuple stands for all
subjects, as in a consumer; that nothing is left is said with None.

Two patterns have at most one pattern in common, token by token: a literal and `*` give the literal,
`>` and what remains give what remains.
"""

from __future__ import annotations

from natsd.core.subject import collide, is_subset

Patterns = tuple[str, ...]


def simplified(patterns: Patterns) -> Patterns:
    """Without those that another one covers. Raises ValueError where two overlap in part."""
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
    """None: no subject is in both. Raises ValueError where the result overlaps in part."""
    if not first or not second:
        return first or second
    found = [both for a in first for b in second if (both := intersection(a, b)) is not None]
    return simplified(tuple(found)) if found else None


def intersection(first: str, second: str) -> str | None:
    """The subjects that match both patterns, as a pattern."""
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
