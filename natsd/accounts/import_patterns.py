"""The subjects of an import, as the exporting and the importing account call them.

    exported   orders.*.>        local   eu.$1.>        orders.x.new  ◀─▶  eu.x.new

- In `to`, a wildcard stands for the n-th `*` of the exported subject by `$n` or `{{wildcard(n)}}`,
  or by `*`, counted from the left. Every `*` of the exported subject must be used.
- So a subscription in the importing account is one in the exporting account, too: `exported_by`
  says to which subject.

Source: nats-server's `transformTokenize`, `transformUntokenize` (server/subject_transform.go).
"""

import re
from typing import Final, NamedTuple, Self

from natsd.core.subject_mapping import check_reversible

_PLACE: Final = re.compile(r"\$([1-9][0-9]*)|\{\{\s*[wW]ildcard\s*\(\s*([0-9]+)\s*\)\s*\}\}")


class ImportPatterns(NamedTuple):
    """The two patterns of one import."""

    exported: str
    local: str
    """The subjects in the importing account, as a pattern."""
    places: tuple[tuple[int, ...], ...] = ()
    """For each `*` of `exported`, the indexes of its tokens in `local`."""

    @classmethod
    def of(cls, exported: str, to: str) -> Self:
        """Return the patterns of an import called `to` locally. Raises InvalidMapping."""
        if "*" not in exported.split(".") and exported.split(".")[-1] != ">":
            return cls(exported, to)
        numbered = with_numbers(to)
        check_reversible(exported, numbered)
        places: dict[int, list[int]] = {}
        tokens = numbered.split(".")
        for index, token in enumerate(tokens):
            found = _PLACE.fullmatch(token)
            if found is not None:
                places.setdefault(int(found[1] or found[2]), []).append(index)
                tokens[index] = "*"
        wildcards = exported.split(".").count("*")
        each = tuple(tuple(places.get(number, ())) for number in range(1, wildcards + 1))
        return cls(exported, ".".join(tokens), each)

    @property
    def is_mapped(self) -> bool:
        """Whether the subject depends on wildcards, and differs between the accounts."""
        if self.exported == self.local:
            return list(self.places) != sorted(self.places)
        return self.has_wildcards

    @property
    def has_wildcards(self) -> bool:
        """Whether the exported subject has wildcards."""
        return "*" in self.exported.split(".") or self.exported.split(".")[-1] == ">"

    def to_local(self) -> tuple[str, str]:
        """Return source and destination of the transform from exported to local subjects."""
        tokens = self.local.split(".")
        for number, places in enumerate(self.places, 1):
            for place in places:
                tokens[place] = f"${number}"
        return self.exported, ".".join(tokens)

    def to_exported(self) -> tuple[str, str]:
        """Return source and destination of the transform from local to exported subjects."""
        stars = [at for at, token in enumerate(self.local.split(".")) if token == "*"]
        numbers = iter([stars.index(places[0]) + 1 for places in self.places])
        tokens = [
            f"${next(numbers)}" if token == "*" else token for token in self.exported.split(".")
        ]
        return self.local, ".".join(tokens)

    def exported_by(self, subscribed: str) -> str | None:
        """Return the exported subjects that a subscription reaches, as a pattern; None: none."""
        common = intersection(subscribed, self.local)
        if common is None:
            return None
        local = common.split(".")
        tokens = self.exported.split(".")
        number = 0
        for index, token in enumerate(tokens):
            if token == "*":
                part = _common_token(local, self.places[number])
                if part is None:
                    return None
                tokens[index] = part
                number += 1
            elif token == ">":
                tokens[index:] = local[len(self.local.split(".")) - 1 :]
                break
        return ".".join(tokens)


def with_numbers(subject: str) -> str:
    """Return a subject in which `$1`, `$2` … stand for its `*` tokens."""
    number = 0
    tokens = subject.split(".")
    for index, token in enumerate(tokens):
        if token == "*":
            number += 1
            tokens[index] = f"${number}"
    return ".".join(tokens)


def intersection(first: str, second: str) -> str | None:
    """Return the pattern of the subjects that match both patterns; None: there are none."""
    a, b = first.split("."), second.split(".")
    common: list[str] = []
    for index in range(max(len(a), len(b))):
        if index >= len(a) or index >= len(b):
            return None
        if a[index] == ">":
            return ".".join(common + b[index:])
        if b[index] == ">":
            return ".".join(common + a[index:])
        token = _narrower(a[index], b[index])
        if token is None:
            return None
        common.append(token)
    return ".".join(common)


def _narrower(first: str, second: str) -> str | None:
    """Return the token that both tokens match; None: there is none."""
    if first == "*" or first == second:
        return second
    return first if second == "*" else None


def _common_token(tokens: list[str], places: tuple[int, ...]) -> str | None:
    """Return the token that those at all places match; None: there is none."""
    common: str | None = "*"
    for place in places:
        common = None if common is None else _narrower(common, tokens[place])
    return common
