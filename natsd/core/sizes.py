"""Numbers of bytes as the log shows them."""

from typing import Final

_UNITS: Final = ("B", "KB", "MB", "GB", "TB", "PB")


def friendly_bytes(count: int) -> str:
    """Return a number of bytes as nats-server writes it: `17.65 GB`, in powers of 1024."""
    unit, amount = 0, float(count)
    while amount >= 1024 and unit < len(_UNITS) - 1:
        unit, amount = unit + 1, amount / 1024
    return f"{count} B" if unit == 0 else f"{amount:.2f} {_UNITS[unit]}"
