"""Which stream a subject belongs to: no two streams of an account may want the same message.

Asked of a SubList, so neither the number of streams nor that of their subjects matters. Source:
nats-server 2.14 reference 6.4 (10065).
"""

from collections.abc import Iterable

from natsd.core.sublist import SubList
from natsd.core.subscription import Subscription


class SubjectClaims:
    """The subjects of an account's streams, by owner."""

    def __init__(self) -> None:
        self._sublist = SubList(cache=False)
        self._held: dict[str, list[Subscription]] = {}

    def owners(self, subject: str) -> set[str]:
        """The streams that `subject`, wildcards and all, collides with."""
        return {claim.sid for claim in self._sublist.reverse_match(subject).plain}

    def collide(self, subjects: Iterable[str], *, but: str = "") -> bool:
        """Whether any of them belongs to a stream other than `but` already."""
        return any(self.owners(subject) - {but} for subject in subjects)

    def claim(self, owner: str, subjects: Iterable[str]) -> None:
        """These are now `owner`'s, and nothing else is."""
        claims = [Subscription(subject, sid=owner) for subject in subjects]
        self.release(owner)
        self._held[owner] = claims
        for claim in claims:
            self._sublist.insert(claim)

    def release(self, owner: str) -> None:
        """Nothing is `owner`'s any more."""
        self._sublist.remove_batch(self._held.pop(owner, ()))
