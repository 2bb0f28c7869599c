"""What a job says when it cannot go on: one line, what, where, and what to do."""

import re
from typing import Final

_RAISED: Final = re.compile(
    r"^[\w.]*(?:Error|Exception|Loss|Refused|Problem)\b[^:\n]*: *(\S.*)$", re.M
)


class JobError(Exception):
    """A job cannot go on; the text is for the person who started it."""


def reason_of(error: Exception) -> str:
    """The line that says why, of an error that Spark wraps in traces of two languages."""
    text = str(error)
    raised = _RAISED.findall(text)
    if raised:
        return str(raised[-1]).strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), repr(error))
