"""Subject filters as regular expressions that Spark can evaluate."""

import re


def pattern_of(subject: str) -> str:
    """Return a regular expression, valid in Java and Python, that matches what the filter matches.

    `*` stands for one token, a final `>` for one or more tokens.
    """
    tokens = subject.split(".")
    has_rest = tokens[-1] == ">"
    parts = [r"[^.]+" if token == "*" else re.escape(token) for token in tokens]
    if has_rest:
        parts[-1] = ".+"
    return "^" + r"\.".join(parts) + "$"
