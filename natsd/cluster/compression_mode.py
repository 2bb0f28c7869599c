"""How the messages of a route are compressed: what two servers agree on, and what a level is.

    our mode     peer's mode     agreed
    any          not supported   none, nor any later change
    any          off             off
    accept       accept          off
    accept       s2_auto         s2_fast
    accept       s2_…            that of the peer
    other        accept, s2_…    ours; s2_auto is a level by the round trip time

Source: nats-server's `selectCompressionMode`, `selectS2AutoModeBasedOnRTT` and
`validateAndNormalizeCompressionOption` (server/server.go).
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from natsd.config.listener_options import CompressionOptions

NOT_SUPPORTED: Final = "not supported"
OFF: Final = "off"
ACCEPT: Final = "accept"
AUTO: Final = "s2_auto"
UNCOMPRESSED: Final = "s2_uncompressed"
FAST: Final = "s2_fast"
BETTER: Final = "s2_better"
BEST: Final = "s2_best"
LEVELS: Final = (UNCOMPRESSED, FAST, BETTER, BEST)

THRESHOLDS_DEFAULT: Final = (
    timedelta(milliseconds=10),
    timedelta(milliseconds=50),
    timedelta(milliseconds=100),
)
"""Round trip times up to which `s2_auto` uses each level; beyond the last one, the best level."""

_MODES: Final = {
    "not supported": NOT_SUPPORTED,
    "not_supported": NOT_SUPPORTED,
    "disabled": OFF,
    "off": OFF,
    "false": OFF,
    "accept": ACCEPT,
    "auto": AUTO,
    "s2_auto": AUTO,
    "on": FAST,
    "enabled": FAST,
    "true": FAST,
    "fast": FAST,
    "s2_fast": FAST,
    "better": BETTER,
    "s2_better": BETTER,
    "best": BEST,
    "s2_best": BEST,
}


class UnknownMode(Exception):
    """The peer's mode is not known; the text is the one for `-ERR`."""


def mode_of(options: CompressionOptions) -> str:
    """Return the mode of the settings, as INFO has it."""
    return _MODES[options.mode.lower()]


def is_negotiated(mode: str) -> bool:
    """Return whether a server with this mode waits for the peer's INFO and may compress."""
    return mode not in ("", OFF, NOT_SUPPORTED)


def agreed(ours: str, theirs: str) -> str:
    """Return the mode that both servers use. Raises UnknownMode."""
    if theirs in ("", NOT_SUPPORTED):
        return NOT_SUPPORTED
    if theirs == OFF:
        return OFF
    if theirs == ACCEPT:
        return OFF if ours == ACCEPT else ours
    if theirs not in (AUTO, *LEVELS):
        raise UnknownMode(f'unsupported route compression mode "{theirs}"')
    if ours != ACCEPT:
        return ours
    return FAST if theirs == AUTO else theirs


def level_for(rtt_ns: int, options: CompressionOptions) -> str:
    """Return the level of `s2_auto` at a round trip time."""
    thresholds = _without_last_zeros(options.rtt_thresholds) or THRESHOLDS_DEFAULT
    for level, threshold in zip(LEVELS, thresholds, strict=False):
        if rtt_ns <= threshold.total_seconds() * 1e9:
            return level
    return BEST if len(thresholds) >= len(LEVELS) - 1 else LEVELS[len(thresholds) - 1]


def _without_last_zeros(thresholds: Sequence[timedelta]) -> Sequence[timedelta]:
    end = len(thresholds)
    while end and not thresholds[end - 1]:
        end -= 1
    return thresholds[:end]
