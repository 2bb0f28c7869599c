"""What two servers agree on (nats-server's `selectCompressionMode`)."""

from datetime import timedelta

import pytest

from natsd.cluster.compression_mode import UnknownMode, agreed, is_negotiated, level_for, mode_of
from natsd.config.listener_options import CompressionOptions

AGREED = [
    ("accept", "", "not supported"),
    ("s2_fast", "not supported", "not supported"),
    ("s2_fast", "off", "off"),
    ("accept", "accept", "off"),
    ("s2_best", "accept", "s2_best"),
    ("accept", "s2_auto", "s2_fast"),
    ("accept", "s2_better", "s2_better"),
    ("accept", "s2_uncompressed", "s2_uncompressed"),
    ("s2_fast", "s2_best", "s2_fast"),
    ("s2_auto", "s2_fast", "s2_auto"),
]


@pytest.mark.parametrize(("ours", "theirs", "expected"), AGREED)
def test_two_servers_agree(ours: str, theirs: str, expected: str) -> None:
    assert agreed(ours, theirs) == expected


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(UnknownMode, match='unsupported route compression mode "zstd"'):
        agreed("s2_fast", "zstd")


@pytest.mark.parametrize(
    ("given", "mode"),
    [("on", "s2_fast"), ("TRUE", "s2_fast"), ("disabled", "off"), ("auto", "s2_auto")],
)
def test_a_mode_has_several_spellings(given: str, mode: str) -> None:
    assert mode_of(CompressionOptions(mode=given)) == mode


def test_only_some_modes_wait_for_the_peer() -> None:
    assert [is_negotiated(mode) for mode in ("off", "not supported", "", "accept", "s2_auto")] == [
        False,
        False,
        False,
        True,
        True,
    ]


RTTS = [
    ((), 5, "s2_uncompressed"),
    ((), 10, "s2_uncompressed"),
    ((), 11, "s2_fast"),
    ((), 99, "s2_better"),
    ((), 101, "s2_best"),
    ((20,), 30, "s2_uncompressed"),
    ((20, 40), 50, "s2_fast"),
    ((0, 20, 40), 10, "s2_fast"),
    ((0, 20, 0), 30, "s2_fast"),
    ((10, 20, 30, 40), 50, "s2_best"),
]


@pytest.mark.parametrize(("thresholds_ms", "rtt_ms", "level"), RTTS)
def test_the_level_depends_on_the_round_trip_time(
    thresholds_ms: tuple[int, ...], rtt_ms: int, level: str
) -> None:
    thresholds = tuple(timedelta(milliseconds=each) for each in thresholds_ms)
    options = CompressionOptions(mode="s2_auto", rtt_thresholds=thresholds)
    assert level_for(rtt_ms * 1_000_000, options) == level
