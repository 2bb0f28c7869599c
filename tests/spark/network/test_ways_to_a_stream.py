"""A stream that is reached through a domain, or read from its mirror."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from natsd.spark.network.network_read import read_range
from natsd.spark.ranges import RangeRequest
from natsd.spark.wire.client import NatsClient
from tests.spark.failures.waiting import wait_until
from tests.spark.serving import create, natsd_server, options, publish

COUNT = 500


def sequences(url: str, stream: str, **way: Any) -> list[int]:
    request = RangeRequest(stream, 1, COUNT)
    batches = read_range(options(url, **way), request, ("seq", "data"))
    return [sequence for batch in batches for sequence in batch.column("seq").to_pylist()]


@pytest.mark.parametrize("direct", [True, False])
def test_through_a_domain(tmp_path: Path, direct: bool) -> None:
    jetstream = {"enabled": True, "store_dir": tmp_path, "domain": "hub"}
    with natsd_server(tmp_path, jetstream=jetstream) as url:
        with NatsClient(options(url, domain="hub")) as client:
            create(client, "ORDERS", "orders.>", allow_direct=direct)
            publish(client, [("orders.new", b"", b"%d" % n) for n in range(COUNT)])
        assert sequences(url, "ORDERS", domain="hub") == list(range(1, COUNT + 1))
        assert sequences(url, "ORDERS", api_prefix="$JS.hub.API") == list(range(1, COUNT + 1))


@pytest.mark.parametrize("mirror_direct", [True, False])
def test_a_mirror(tmp_path: Path, mirror_direct: bool) -> None:
    with natsd_server(tmp_path) as url, NatsClient(options(url)) as client:
        create(client, "ORDERS", "orders.>", allow_direct=True)
        publish(client, [("orders.new", b"", b"%d" % n) for n in range(COUNT)])
        mirror = {"name": "COPY", "mirror": {"name": "ORDERS"}, "mirror_direct": mirror_direct}
        client.api("STREAM.CREATE.COPY", {**mirror, "allow_direct": mirror_direct})
        wait_until(lambda: client.api("STREAM.INFO.COPY")["state"]["messages"] == COUNT)
        assert sequences(url, "COPY") == list(range(1, COUNT + 1))
        assert sequences(url, "ORDERS") == list(range(1, COUNT + 1))
