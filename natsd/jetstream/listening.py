"""A set of subscriptions with one owner in a SubList; it may hold a hundred thousand subjects.

Promise
- The cost of `change` is that of the subjects that are new or gone. It runs in steps; a second
  `change` replaces one that is still running.
"""

from collections.abc import Sequence

from natsd.core.routing import Sink, SubList, Subscription
from natsd.core.steps import Steps, slices


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
        """Subscribe to these subjects and no others; new ones are added before old ones go."""
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
