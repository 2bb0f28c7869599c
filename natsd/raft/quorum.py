"""Majorities."""

from collections.abc import Collection


def majority(voter_count: int) -> int:
    """Return how many of so many voters are a majority."""
    return voter_count // 2 + 1


def majority_index(indexes: Collection[int]) -> int:
    """Return the highest index that a majority of voters has reached; 0: there are no voters."""
    if not indexes:
        return 0
    return sorted(indexes)[(len(indexes) - 1) // 2]
