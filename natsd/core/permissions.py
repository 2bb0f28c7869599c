"""What a session may do: the questions that a connection asks of its permissions.

Verdicts are cached by the connection (verdicts.pyx), so a question is asked once per subject for a
while. An object with other permissions must be another object: the cache goes with it.
"""

from typing import Protocol


class Permissions(Protocol):
    """The permissions of one session. A session without any has None, and is never asked."""

    def may_publish(self, subject: str) -> bool:
        """Return whether the session may publish to a subject."""
        ...

    def may_subscribe(self, subject: str, queue: str | None) -> bool:
        """Return whether the session may subscribe, as a member of `queue` if it is given.

        It is also asked for the literal subject of a message before it is delivered: a subscription
        with wildcards may include subjects that are denied.
        """
        ...
