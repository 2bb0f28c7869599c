"""A plot of a comparison as SVG: one bar per row, how many times better than the best other server.

Where lower is better the ratio is inverted, so that a longer bar is always better. A vertical line
stands at 1, where both are equal; a tick marks the goal.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Protocol

ROW_HEIGHT = 26
LABEL_WIDTH = 400
PLOT_WIDTH = 420
MARGIN = 20
HEAD_HEIGHT = 64
BETTER, WORSE, INK = "#2a7f62", "#b3423a", "#333333"


class Bar(Protocol):
    """The data of one bar."""

    @property
    def title(self) -> str:
        """The name of the measured row."""

    @property
    def ratio(self) -> float | None:
        """Our value divided by the best other value; None: the row gets no bar."""

    @property
    def goal(self) -> float | None:
        """The bound that the ratio should keep; None: there is no goal."""

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher ratio is better than a lower one."""


def times_better(ratio: float, higher_is_better: bool) -> float:
    """Return the ratio so that more is better: inverted if a lower ratio is better."""
    return ratio if higher_is_better or not ratio else 1 / ratio


def svg(title: str, subtitle: str, results: Sequence[Bar]) -> str:
    """Return the whole picture; rows without a ratio are left out."""
    bars = [(result, result.ratio) for result in results if result.ratio is not None]
    values = [times_better(ratio, result.higher_is_better) for result, ratio in bars]
    goals = [_goal(result) for result, _ in bars]
    scale = PLOT_WIDTH / max([1.5, *values, *(goal for goal in goals if goal)])
    width = LABEL_WIDTH + PLOT_WIDTH + 90
    height = HEAD_HEIGHT + ROW_HEIGHT * len(bars) + MARGIN
    font = f'font-family="sans-serif" font-size="13" fill="{INK}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" {font}>',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{MARGIN}" y="24" font-size="16">{escape(title)}</text>',
        f'<text x="{MARGIN}" y="44" font-size="11">{escape(subtitle)}</text>',
    ]
    for index, ((result, _), value, goal) in enumerate(zip(bars, values, goals, strict=True)):
        top = HEAD_HEIGHT + index * ROW_HEIGHT
        parts += _bar(result.title, value, goal, top, scale)
    line = LABEL_WIDTH + scale
    parts.append(
        f'<line x1="{line:.1f}" x2="{line:.1f}" y1="{HEAD_HEIGHT - 6}" '
        f'y2="{height - MARGIN + 6}" stroke="{INK}"/>'
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def write_svg(path: Path, title: str, subtitle: str, results: Sequence[Bar]) -> None:
    """Write the picture to `path`."""
    path.write_text(svg(title, subtitle, results))


def _goal(result: Bar) -> float | None:
    if result.goal is None:
        return None
    return times_better(result.goal, result.higher_is_better)


def _bar(title: str, value: float, goal: float | None, top: int, scale: float) -> list[str]:
    middle = top + ROW_HEIGHT / 2 + 4
    length = value * scale
    end = LABEL_WIDTH + length
    size = f'width="{length:.1f}" height="{ROW_HEIGHT - 8}"'
    color = BETTER if value >= (goal or 1) else WORSE
    parts = [
        f'<text x="{LABEL_WIDTH - 8}" y="{middle:.1f}" text-anchor="end">{escape(title)}</text>',
        f'<rect x="{LABEL_WIDTH}" y="{top + 4}" {size} fill="{color}"/>',
        f'<text x="{end + 6:.1f}" y="{middle:.1f}">{value:.2f} ×</text>',
    ]
    if goal is not None:
        x = LABEL_WIDTH + goal * scale
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top + 1}" y2="{top + ROW_HEIGHT - 1}" '
            f'stroke="{INK}" stroke-dasharray="3 2"/>'
        )
    return parts
