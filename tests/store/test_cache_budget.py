"""Caches of many blocks within one limit: what was used longest ago goes first."""

from hypothesis import given
from hypothesis import strategies as st

from natsd.store.cache_budget import CacheBudget


def test_the_least_recently_used_goes_first() -> None:
    gone: list[str] = []
    budget = CacheBudget(100)
    for key in ("a", "b", "c"):
        budget.hold(key, 30, lambda key=key: gone.append(key))  # type: ignore[misc]  # a default
    budget.used("a")
    budget.used("nobody")
    budget.hold("d", 40, lambda: gone.append("d"))
    assert gone == ["b"]
    assert (budget.held_bytes, len(budget), "a" in budget, "b" in budget) == (100, 3, True, False)
    budget.resize(50)
    assert gone == ["b", "c", "a"]


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
    order: list[tuple[int, int]] = []  # key, size; longest unused first
    gone: list[int] = []
    budget = CacheBudget(100)
    for what, key, size in steps:
        sizes = dict(order)
        if what == "hold":
            budget.hold(key, size, lambda key=key: gone.append(key))  # type: ignore[misc]  # the same
            order = [pair for pair in order if pair[0] != key] + [(key, size)]
            expected = []
            while sum(held for _, held in order) > 100 and order[0][0] != key:
                expected.append(order.pop(0)[0])
            assert gone == expected
            gone.clear()
        elif what == "use":
            budget.used(key)
            if key in sizes:
                order = [pair for pair in order if pair[0] != key] + [(key, sizes[key])]
        else:
            budget.release(key)
            order = [pair for pair in order if pair[0] != key]
        assert budget.held_bytes == sum(held for _, held in order)
        assert all(key in budget for key, _ in order)
