"""The checks of subjects in claims.

Source: nats-io/jwt v2 (types.go, exports.go).
"""

import re
from collections.abc import Iterable
from typing import Final

from natsd.auth.jwt.issues import Issues

_REFERENCE: Final = re.compile(r"\$(\d{1,9})")


def check_subject(subject: str, issues: Issues) -> None:
    """Check that a subject has no empty token and no space."""
    if not subject:
        issues.errors.append("subject cannot be empty")
        return
    if " " in subject:
        issues.errors.append(f'subject "{subject}" cannot have spaces')
    if subject.startswith(".") or subject.endswith("."):
        issues.errors.append(f'subject "{subject}" cannot start or end with a `.`')
    if ".." in subject:
        issues.errors.append(f'subject "{subject}" cannot contain consecutive `.`')


def has_wildcards(subject: str) -> bool:
    """Return whether a subject has a token `*`, or ends in `>`."""
    tokens = subject.split(".")
    return "*" in tokens or tokens[-1] == ">"


def is_contained(subject: str, other: str) -> bool:
    """Return whether every subject that matches `subject` matches `other` too."""
    mine, others = subject.split("."), other.split(".")
    if len(mine) < len(others) or (len(mine) > len(others) and others[-1] != ">"):
        return False
    for at, token in enumerate(others):
        if at == len(others) - 1 and token == ">":
            return True
        if token not in {mine[at], "*"}:
            return False
    return True


def check_renaming(to: str, subject: str, issues: Issues) -> None:
    """Check the local subject of an import, which refers to the wildcards of `subject`."""
    check_subject(to, issues)
    if (to.split(".")[-1] == ">") != (subject.split(".")[-1] == ">"):
        issues.errors.append("both, renaming subject and subject, need to end or not end in >")
    wildcards = subject.split(".").count("*")
    referred = 0
    for token in to.split("."):
        reference = _REFERENCE.fullmatch(token)
        if token == "*":
            referred += 1
        elif reference and int(reference.group(1)) > wildcards:
            issues.errors.append(
                f'Reference ${reference.group(1)} in "{to}" reference * in "{subject}"'
                " that do not exist"
            )
        elif reference:
            referred += 1
    if referred != wildcards:
        issues.errors.append("subject does not contain enough * or reference wildcards $[0-9]")


def without_references(subject: str) -> str:
    """Return a local subject with `*` in place of each reference."""
    return ".".join("*" if _REFERENCE.fullmatch(token) else token for token in subject.split("."))


class _Node:
    """The subjects that begin with the same tokens."""

    __slots__ = ("children", "subjects")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.subjects: list[int] = []


def overlaps(subjects: Iterable[str]) -> list[tuple[str, str]]:
    """Return pairs of subjects of which the first contains the second; one for each second.

    The time grows with the number of subjects, not with its square: a token may hold thousands.
    """
    listed = list(subjects)
    root = _Node()
    for number, subject in enumerate(listed):
        node = root
        for token in subject.split("."):
            node = node.children.setdefault(token, _Node())
        node.subjects.append(number)
    pairs = []
    for number, subject in enumerate(listed):
        container = _container(root, subject.split("."), number)
        if container is not None:
            pairs.append((listed[container], subject))
    return pairs


def _container(root: _Node, tokens: list[str], number: int) -> int | None:
    """Return the number of another subject that contains the one of these tokens."""
    nodes = [root]
    for at, token in enumerate(tokens):
        following = []
        for node in nodes:
            rest = node.children.get(">")
            if rest is not None:
                for found in rest.subjects:
                    if found != number:
                        return found
            for name in {token, "*"}:
                child = node.children.get(name)
                if child is not None and name != ">":
                    following.append(child)
        nodes = following
        if at == len(tokens) - 1:
            for node in nodes:
                for found in node.subjects:
                    if found != number:
                        return found
    return None
