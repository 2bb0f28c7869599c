"""One call of the disk fails while an operator deletes, recreates, purges, updates or erases.

Acknowledged messages stay, and removed ones stay removed (tests/jetstream/faults.py).
"""

from __future__ import annotations

import asyncio
import errno
import logging

import pytest

from tests.jetstream.faults import KINDS, OPERATIONS, fail_one_call
from tests.store.crash import TORTURE
from tests.store.machine import AtOnce

pytestmark = pytest.mark.torture

STEP = 37
"""The distance in calls between the failing calls of two cases."""
CALLS_MAX = 400
ERRORS = (errno.EIO, errno.ENOSPC)
# Each combination begins at a different call; under NATSD_TORTURE, every call fails once.
CASES = [
    (kind, operation, 1 + (7 * k + 4 * o + more) % STEP)
    for k, kind in enumerate(KINDS)
    for o, operation in enumerate(OPERATIONS)
    for more in range(1 if TORTURE == 1 else STEP)
]


@pytest.fixture(autouse=True)
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("natsd.store.commit.volume.ThreadPoolExecutor", lambda *_, **__: AtOnce())


@pytest.mark.parametrize(("kind", "operation", "first"), CASES)
def test_one_call_fails(
    kind: str, operation: str, first: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL):  # faults are logged as failures
        for place in range(first, CALLS_MAX, STEP):
            errors = ERRORS if TORTURE > 1 else (ERRORS[place % 2],)
            outcomes = [
                asyncio.run(fail_one_call(kind, operation, place, number)) for number in errors
            ]
            if not any(outcome.was_reached for outcome in outcomes):
                return
    raise AssertionError("the operation makes more calls than that")
