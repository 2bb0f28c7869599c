"""The subjects that somebody stands for in a SubList: there may be a hundred thousand of them.

Promise
- `change` costs what is new or gone, in steps; a second one takes over from one under way.
"""

from collections.abc import Sequence

from natsd.core.steps import Steps, slices
from natsd.core.sublist import SubList
from natsd.core.subscription import Sink, Subscription


class Listening:
    """Subscriptions by subject, all with the same `sid` and `sink`."""

    def __init__(self, sublist: SubList, sid: str | bytes, sink: Sink | None = None) -> None:
        self._sublist = sublist
        self._sid = sid
        self._sink = sink
        self._held: dict[str, Subscription] = {}
        self._changes = 0

    def __len__(self) -> int:
        return len(self._held)

    def change(self, subjects: Sequence[str]) -> Steps[None]:
        """Have these, and nothing else; what is new comes before anything goes."""
        self._changes += 1
        mine, wanted = self._changes, set[str]()
        for some in slices(subjects):
            for subject in some:
                if subject not in self._held:
                    self._begin(subject)
            wanted.update(some)
            yield
            if mine != self._changes:
                return
        if len(wanted) == len(self._held):
            return
        for some in slices(list(self._held)):
            for subject in some:
                if subject not in wanted:
                    self._end(subject)
            yield
            if mine != self._changes:
                return

    def _begin(self, subject: str) -> None:
        subscription = Subscription(subject, sid=self._sid, sink=self._sink)
        self._held[subject] = subscription
        self._sublist.insert(subscription)

    def _end(self, subject: str) -> None:
        subscription = self._held.pop(subject)
        self._sublist.remove(subscription)
        subscription.detach()
