"""What a limit of open files allows, and which limit a number of connections needs."""

from __future__ import annotations

import resource

import pytest

from natsd.config import resources
from natsd.config.resources import connections_possible, open_files_for

OPEN = 20


@pytest.mark.parametrize("limit", [64, 100, 4095, 4096, 4097, 65_536, 1 << 20])
def test_the_advised_limit_suffices_and_is_hardly_more(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def set_limit(soft: int) -> None:
        monkeypatch.setattr(resource, "getrlimit", lambda _kind: (soft, soft))

    monkeypatch.setattr(resources, "_lowest_free_descriptor", lambda: OPEN)
    set_limit(limit)
    possible = connections_possible()
    assert 0 < possible < limit - OPEN
    advised = open_files_for(possible)
    set_limit(advised)
    assert possible <= connections_possible() <= possible + 1
    assert advised <= limit + 1
    set_limit(advised - 3)
    assert connections_possible() < possible


def test_without_a_limit_any_number_is_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    unlimited = resource.RLIM_INFINITY, resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: unlimited)
    assert connections_possible() > 1 << 60
