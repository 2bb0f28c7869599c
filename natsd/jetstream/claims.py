"""The subjects that each stream of an account owns: no message may match two streams.

Lookups use a SubList, so their cost depends neither on the number of streams nor on the number of
their subjects. Changes run in steps, because a stream may have very many subjects.

Source: nats-server's `jsAccount.subjectsOverlap` (error 10065).
"""

from collections.abc import Sequence

from natsd.core.routing import SubList
from natsd.core.steps import Steps, slices
from natsd.jetstream.listening import Listening


class SubjectClaims:
    """Subjects of an account's streams, with the owning stream of each."""

    def __init__(self) -> None:
        self._sublist = SubList(cache=False)
        self._held: dict[str, Listening] = {}

    def owners(self, subject: str) -> set[str]:
        """Return the streams whose subjects overlap `subject`, which may have wildcards."""
        return {claim.sid for claim in self._sublist.reverse_match(subject).plain}

    def is_owner(self, owner: str, subject: str | bytes) -> bool:
        """Return whether a message published to `subject` belongs to the stream `owner`."""
        return any(claim.sid == owner for claim in self._sublist.match(subject).plain)

    def collide(self, subjects: Sequence[str], *, but: str = "") -> Steps[bool]:
        """Return whether any of the subjects belongs to a stream other than `but` already."""
        for some in slices(subjects):
            if any(self.owners(subject) - {but} for subject in some):
                return True
            yield
        return False

    def claim(self, owner: str, subjects: Sequence[str]) -> Steps[None]:
        """Make these subjects the only ones that `owner` owns; none: it owns nothing."""
        held = self._held.get(owner)
        if held is None:
            held = self._held[owner] = Listening(self._sublist, owner)
        yield from held.change(subjects)
        if not len(held):
            self._held.pop(owner, None)
