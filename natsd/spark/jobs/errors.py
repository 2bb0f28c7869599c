"""What a job says when it cannot go on: one line, what, where, and what to do."""

import re
from typing import Final

TRACE: Final = "Traceback (most recent call last)"
_RAISED: Final = re.compile(r"^(?:\w+\.)*[A-Z]\w+: *(\S.*)$", re.M)


class JobError(Exception):
    """A job cannot go on; the text is for the person who started it."""


def reason_of(error: Exception) -> str:
    """The line that says why, of an error that Spark wraps in traces of two languages: what was
    raised at the end of the last trace of Python, or the first line."""
    text = str(error)
    _, trace, last = text.rpartition(TRACE)
    raised = _RAISED.search(last) if trace else None
    if raised is not None:
        return raised[1].strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), repr(error))
