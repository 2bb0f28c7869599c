"""Rows about natsd alone: a measured value, and the bound that it should keep."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GoalRow:
    """One line of the table; without a `goal` every value will do."""

    key: str
    title: str
    goal: float | None = None
    higher_is_better: bool = True
    digits: int = 2

    def meets_goal(self, value: float) -> bool:
        """Return whether the value keeps the bound."""
        if self.goal is None:
            return True
        return value >= self.goal if self.higher_is_better else value <= self.goal

    @property
    def goal_text(self) -> str:
        """The goal as the table shows it; empty: there is none."""
        if self.goal is None:
            return ""
        return f"{'≥' if self.higher_is_better else '≤'} {self.goal:g}"

    def text(self, value: float | None) -> str:
        """Return the value as the table shows it; empty: it was not measured."""
        return "" if value is None else f"{value:,.{self.digits}f}"


def rate(key: str, title: str, goal: float | None = None) -> GoalRow:
    """Return a row in which a higher value is better."""
    return GoalRow(key, title, goal)


def cost(key: str, title: str, goal: float | None = None, digits: int = 2) -> GoalRow:
    """Return a row in which a lower value is better."""
    return GoalRow(key, title, goal, higher_is_better=False, digits=digits)
