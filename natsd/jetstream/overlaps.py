"""Which of many subjects overlap: asked of a SubList, so that n subjects cost n questions.

- `collisions`: two subjects that could receive the same message, as those of streams may not.
- `coverings`: a subject of which another one receives every message, as filters may not.

Both give a function that is asked for one subject after the other, in steps of the caller's. Where
there are no wildcards it is about equal texts only, and there may be a hundred thousand of them.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from natsd.core.subject import is_literal, is_subset, is_valid
from natsd.core.sublist import SubList
from natsd.core.subscription import Subscription
from natsd.jetstream.steps import AT_ONCE, Steps, slices

Find: TypeAlias = Callable[[int], int | None]
"""Given a subject's place, the place of another one that overlaps with it; None: there is none."""


def collisions(subjects: Sequence[str]) -> Steps[Find]:
    """Finds the first place behind a place whose subject could receive the same message."""
    if (yield from _are_literal(subjects)):
        return (yield from _equals(subjects))
    listed, places = yield from _listed(subjects)

    def find(place: int) -> int | None:
        met = (places[each] for each in listed.reverse_match(subjects[place]).plain)
        return min((other for other in met if other > place), default=None)

    return find


def coverings(subjects: Sequence[str]) -> Steps[Find]:
    """Finds a place whose subject receives all that the one at another place does."""
    if (yield from _are_literal(subjects)):
        return (yield from _equals(subjects))
    listed, places = yield from _listed(subjects)

    def find(place: int) -> int | None:
        subject = subjects[place]
        # A subject's own text leads to whatever includes it, wildcards and all, and to some more.
        for each in listed.match(subject).plain:
            if places[each] != place and is_subset(subject, each.subject):
                return places[each]
        return None

    return find


def do_collide(some: Sequence[str], others: Sequence[str]) -> Steps[bool]:
    """Whether any of the one could receive a message that any of the others could."""
    listed, _ = yield from _listed(some)
    for each in slices(others):
        if any(listed.reverse_match(subject).plain for subject in each):
            return True
        yield
    return False


def _are_literal(subjects: Sequence[str]) -> Steps[bool]:
    for some in slices(subjects):
        if not all(map(is_literal, some)):
            return False
        yield
    return True


def _equals(subjects: Sequence[str]) -> Steps[Find]:
    last = dict[str, int]()
    for place, subject in enumerate(subjects):
        last[subject] = place
        if place % AT_ONCE == AT_ONCE - 1:
            yield

    def find(place: int) -> int | None:
        return last[subjects[place]] if last[subjects[place]] > place else None

    return find


def _listed(subjects: Sequence[str]) -> Steps[tuple[SubList, dict[Subscription, int]]]:
    """All up to the first that is no subject: it is refused before anything behind it matters."""
    listed, places = SubList(cache=False), dict[Subscription, int]()
    for place, subject in enumerate(subjects):
        if not is_valid(subject):
            break
        subscription = Subscription(subject)
        listed.insert(subscription)
        places[subscription] = place
        if place % AT_ONCE == AT_ONCE - 1:
            yield
    return listed, places
