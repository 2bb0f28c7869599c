"""Which stream a subject belongs to: no two streams of an account may want the same message.

Asked of a SubList, so neither the number of streams nor that of their subjects matters; in steps,
since a stream may have very many. Source: nats-server 2.14 reference 6.4 (10065).
"""

from collections.abc import Sequence

from natsd.core.steps import Steps, slices
from natsd.core.sublist import SubList
from natsd.jetstream.listening import Listening


class SubjectClaims:
    """The subjects of an account's streams, by owner."""

    def __init__(self) -> None:
        self._sublist = SubList(cache=False)
        self._held: dict[str, Listening] = {}

    def owners(self, subject: str) -> set[str]:
        """The streams that `subject`, wildcards and all, collides with."""
        return {claim.sid for claim in self._sublist.reverse_match(subject).plain}

    def is_owner(self, owner: str, subject: str | bytes) -> bool:
        """Whether what is published to `subject` is for that stream."""
        return any(claim.sid == owner for claim in self._sublist.match(subject).plain)

    def collide(self, subjects: Sequence[str], *, but: str = "") -> Steps[bool]:
        """Whether any of them belongs to a stream other than `but` already."""
        for some in slices(subjects):
            if any(self.owners(subject) - {but} for subject in some):
                return True
            yield
        return False

    def claim(self, owner: str, subjects: Sequence[str]) -> Steps[None]:
        """These are now `owner`'s, and nothing else is."""
        held = self._held.get(owner)
        if held is None:
            held = self._held[owner] = Listening(self._sublist, owner)
        yield from held.change(subjects)
        if not len(held):
            self._held.pop(owner, None)
