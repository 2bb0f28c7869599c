"""How numbers, sizes and spans are written: short, and of steady width."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

NOTHING: Final = "–"
BARS: Final = "▁▂▃▄▅▆▇█"
_DECIMAL: Final = ("", "k", "M", "G", "T", "P")
_BINARY: Final = ("B", "K", "M", "G", "T", "P")


def short(number: float | None) -> str:
    """Return a number in at most five characters: 950, 12.3k, 4.56M."""
    return _scaled(number, 1000, _DECIMAL)


def size(number: float | None) -> str:
    """Return a number of bytes in at most five characters: 950B, 12.3K, 4.56M."""
    return _scaled(number, 1024, _BINARY)


def _scaled(number: float | None, base: int, units: Sequence[str]) -> str:
    if number is None:
        return NOTHING
    unit = 0
    while number >= base * 0.9995 and unit < len(units) - 1:
        number /= base
        unit += 1
    digits = 2 if number < 10 else 1 if number < 100 else 0
    if unit == 0:
        digits = 0 if number == int(number) or number >= 100 else 1
    return f"{number:.{digits}f}{units[unit]}"


def span(seconds: float | None) -> str:
    """Return a span by its two largest units: `3d 4h`, `12m 5s`."""
    if seconds is None:
        return NOTHING
    left = max(int(seconds), 0)
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count or parts or unit == "s":
            parts.append(f"{count}{unit}")
    return " ".join(part for part in parts[:2] if part[0] != "0" or len(parts) == 1)


def age_s(moment: str | None, now: str) -> float | None:
    """Return the seconds between two times as the server writes them; None if one is missing."""
    if not moment:
        return None
    return (_time(now) - _time(moment)).total_seconds()


def _time(text: str) -> datetime:
    """Read a time with up to nine digits of a second; six are used."""
    head, _, fraction = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{head}.{fraction[:6]:0<6}+00:00")


def sparkline(numbers: Sequence[float | None], width: int) -> str:
    """Return the latest numbers as bars, as many as there is width; the largest is a full bar."""
    latest = [number or 0 for number in numbers][-width:] if width > 0 else []
    most = max(latest, default=0)
    if most <= 0:
        return BARS[0] * len(latest)
    return "".join(BARS[min(int(number / most * len(BARS)), len(BARS) - 1)] for number in latest)


def plain(text: str) -> str:
    """Return a text that some client chose without what a terminal could act upon."""
    return "".join(each if each.isprintable() else "�" for each in text)
