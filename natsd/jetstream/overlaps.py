"""Search for overlaps among many subjects, in a SubList: n subjects cost n lookups.

- `collisions`: two subjects that could receive the same message; streams may not have such pairs.
- `coverings`: a subject that receives every message of another one; filters may not do so.

Both call `tell` for one subject after the other, in steps. Without wildcards only equal texts
overlap, and there may be a hundred thousand subjects. The SubList is emptied in steps too, because
freeing a hundred thousand subscriptions takes as long as inserting them.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from natsd.core.routing import SubList, Subscription, is_literal, is_subset, is_valid
from natsd.core.steps import AT_ONCE, Steps, slices

T = TypeVar("T")

Tell: TypeAlias = Callable[[int, int | None], None]
"""Callback that gets the index of a subject, and the index of a subject that overlaps it.

None in the second place: none overlaps it. If the callback raises, the search ends.
"""

_Find: TypeAlias = Callable[[int], int | None]


def collisions(subjects: Sequence[str], tell: Tell) -> Steps[None]:
    """Report for each subject the first later one that could receive the same message."""
    if (yield from _are_literal(subjects)):
        yield from _tell_equals(subjects, tell)
        return
    listed = yield from _Listed.of(subjects)

    def find(place: int) -> int | None:
        met = listed.places_of(listed.sublist.reverse_match(subjects[place]).plain)
        return min((other for other in met if other > place), default=None)

    yield from listed.released_behind(_tell_each(subjects, find, tell))


def coverings(subjects: Sequence[str], tell: Tell) -> Steps[None]:
    """Report for each subject another one that receives all of its messages."""
    if (yield from _are_literal(subjects)):
        yield from _tell_equals(subjects, tell)
        return
    listed = yield from _Listed.of(subjects)

    def find(place: int) -> int | None:
        subject = subjects[place]
        # Matching the subject's own text finds every subject that includes it, with or without
        # wildcards, and a few that do not include it.
        for each in listed.sublist.match(subject).plain:
            if listed.places[each] != place and is_subset(subject, each.subject):
                return listed.places[each]
        return None

    yield from listed.released_behind(_tell_each(subjects, find, tell))


def do_collide(some: Sequence[str], others: Sequence[str]) -> Steps[bool]:
    """Return whether a message could match a subject of `some` and a subject of `others`."""
    listed = yield from _Listed.of(some)
    return (yield from listed.released_behind(_do_any_collide(listed.sublist, others)))


def _do_any_collide(sublist: SubList, others: Sequence[str]) -> Steps[bool]:
    for each in slices(others):
        if any(sublist.reverse_match(subject).plain for subject in each):
            return True
        yield
    return False


def _are_literal(subjects: Sequence[str]) -> Steps[bool]:
    for some in slices(subjects):
        if not all(map(is_literal, some)):
            return False
        yield
    return True


def _tell_equals(subjects: Sequence[str], tell: Tell) -> Steps[None]:
    last = dict[str, int]()
    for place, subject in enumerate(subjects):
        last[subject] = place
        if place % AT_ONCE == AT_ONCE - 1:
            yield

    def find(place: int) -> int | None:
        return last[subjects[place]] if last[subjects[place]] > place else None

    yield from _tell_each(subjects, find, tell)


def _tell_each(subjects: Sequence[str], find: _Find, tell: Tell) -> Steps[None]:
    for place in range(len(subjects)):
        tell(place, find(place))
        if place % AT_ONCE == AT_ONCE - 1:
            yield


class _Listed:
    """Subjects in a SubList, up to the first invalid one.

    An invalid subject is refused before the subjects that follow it matter.
    """

    def __init__(self) -> None:
        self.sublist = SubList(cache=False)
        self.places = dict[Subscription, int]()  # index of each subject

    @classmethod
    def of(cls, subjects: Sequence[str]) -> "Steps[_Listed]":
        listed = cls()
        for place, subject in enumerate(subjects):
            if not is_valid(subject):
                break
            subscription = Subscription(subject)
            listed.sublist.insert(subscription)
            listed.places[subscription] = place
            if place % AT_ONCE == AT_ONCE - 1:
                yield
        return listed

    def places_of(self, subscriptions: Sequence[Subscription]) -> list[int]:
        return [self.places[each] for each in subscriptions]

    def released_behind(self, steps: "Steps[T]") -> "Steps[T]":
        """Run the steps, then empty the SubList, even if they raise; return their result."""
        try:
            result = yield from steps
        except Exception:
            yield from self._release()
            raise
        yield from self._release()
        return result

    def _release(self) -> Steps[None]:
        while self.places:
            self.sublist.remove_batch(
                [self.places.popitem()[0] for _ in range(min(len(self.places), AT_ONCE))]
            )
            yield
