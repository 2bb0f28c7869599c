"""Errors of jobs: one line that says what failed, where, and what to do."""

import re
from typing import Final

TRACE: Final = "Traceback (most recent call last)"
_RAISED: Final = re.compile(r"^(?:\w+\.)*[A-Z]\w+: *(\S.*)$", re.M)
_RAISED_IN_JAVA: Final = re.compile(
    r"\AAn error occurred while calling .*\n: (?:\w+\.)*(\S.*)$", re.M
)


class JobError(Exception):
    """A job cannot continue; the text is for the user who started it."""


def reason_of(error: Exception) -> str:
    """Return the line that states the cause of an error.

    Spark wraps errors in Java and Python traces: the cause is the error at the end of the last
    Python trace; without one, the Java error that the gateway reports, or the first line.
    """
    text = str(error)
    _, trace, last = text.rpartition(TRACE)
    raised = _RAISED.search(last) if trace else None
    if raised is not None:
        return raised[1].strip()
    raised = _RAISED_IN_JAVA.search(text)
    if raised is not None:
        return raised[1].strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), repr(error))
