"""Subjects with wildcards, as Spark can look for them."""

import re


def pattern_of(subject: str) -> str:
    """A regular expression, Java's as well as Python's, for the subjects that a filter matches.

    `*` stands for one token, a last `>` for one or more.
    """
    tokens = subject.split(".")
    has_rest = tokens[-1] == ">"
    parts = [r"[^.]+" if token == "*" else re.escape(token) for token in tokens]
    if has_rest:
        parts[-1] = ".+"
    return "^" + r"\.".join(parts) + "$"
