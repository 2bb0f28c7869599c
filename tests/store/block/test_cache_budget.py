"""Caches of many blocks within one limit: the least recently used one is dropped first."""

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from natsd.store.block.cache_budget import CacheBudget


def test_what_was_used_stays_for_another_turn() -> None:
    gone: list[str] = []
    used = {"a"}
    budget = CacheBudget(100)

    def hold(key: str, size_bytes: int) -> None:
        def take_used() -> bool:
            was_used = key in used
            used.discard(key)
            return was_used

        budget.hold(key, size_bytes, lambda: gone.append(key), take_used)

    for key in ("a", "b", "c"):
        hold(key, 30)
    hold("d", 40)
    assert gone == ["b"]
    assert (budget.held_bytes, len(budget), "a" in budget, "b" in budget) == (100, 3, True, False)
    used.add("c")
    budget.resize(70)
    assert gone == ["b", "d"]
    budget.resize(0)
    assert gone == ["b", "d", "a", "c"]


def test_what_was_held_last_stays_however_large() -> None:
    gone: list[str] = []
    budget = CacheBudget(100)
    budget.hold("small", 10, lambda: gone.append("small"))
    budget.hold("huge", 1000, lambda: gone.append("huge"))
    assert (gone, budget.held_bytes) == (["small"], 1000)
    budget.hold("next", 10, lambda: gone.append("next"))
    assert gone == ["small", "huge"]


def test_a_cache_that_grows_says_so_again() -> None:
    gone: list[str] = []
    budget = CacheBudget(100)
    budget.hold("a", 10, lambda: gone.append("a"))
    budget.hold("a", 60, lambda: gone.append("a"))
    assert (gone, budget.held_bytes, len(budget)) == ([], 60, 1)
    budget.release("a")
    budget.release("a")
    assert budget.held_bytes == 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["hold", "use", "release"]), st.integers(0, 9), st.integers(1, 60)
        ),
        max_size=60,
    )
)
def test_against_a_list(steps: list[tuple[str, int, int]]) -> None:
    order: list[tuple[int, int]] = []  # keys and sizes; the next candidate comes first
    used: set[int] = set()
    gone: list[int] = []
    budget = CacheBudget(100)

    def take_used(key: int) -> bool:
        was_used = key in used
        used.discard(key)
        return was_used

    def shrunk(keep: int, flags: set[int]) -> list[int]:
        expected = []
        while sum(held for _, held in order) > 100 and len(order) > 1:
            first = order.pop(0)
            if first[0] == keep or first[0] in flags:
                flags.discard(first[0])
                order.append(first)
            else:
                expected.append(first[0])
        return expected

    for what, key, size in steps:
        if what == "hold":
            order = [pair for pair in order if pair[0] != key] + [(key, size)]
            expected = shrunk(key, set(used))
            budget.hold(key, size, partial(gone.append, key), partial(take_used, key))
            assert gone == expected
            gone.clear()
        elif what == "use":
            used.add(key)
        else:
            budget.release(key)
            order = [pair for pair in order if pair[0] != key]
        assert budget.held_bytes == sum(held for _, held in order)
