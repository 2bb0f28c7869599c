"""The payloads of the Spark rows."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from natsd.bench.jetstream.api import Api
from natsd.bench.jetstream.arms import JetStreamArm, SyncSetting
from natsd.bench.jetstream.publisher import TOKENS
from natsd.bench.spark.filling import fill, orders


@pytest.mark.parametrize("payload_bytes", [64, 128, 1024])
def test_orders_are_json_of_one_length_and_differ(payload_bytes: int) -> None:
    made = orders(50, payload_bytes)
    assert made == orders(50, payload_bytes)
    assert len(set(made)) == len(made)
    for each in made:
        assert len(each) == payload_bytes
        assert json.loads(each)["note"]


def test_a_stream_is_filled_once_and_its_server_can_be_stopped(tmp_path: Path) -> None:
    with JetStreamArm("natsd", "", SyncSetting.DEFAULT, tmp_path).running() as server:
        fill(server, "ORDERS_64", TOKENS + 5, 64)
        with Api(server.host, server.port) as api:
            before = api.request("STREAM.INFO.ORDERS_64")
            assert before["state"]["messages"] == TOKENS + 5
            assert before["state"]["num_subjects"] == 1_000
        fill(server, "ORDERS_64", TOKENS, 64)
        server.stop()
        server.stop()
        assert (server.store_dir / "jetstream" / "natsd.lock").exists()
        server.start()
        with Api(server.host, server.port) as api:
            after = api.request("STREAM.INFO.ORDERS_64")
            assert after["created"] == before["created"]
            found = [
                api.request("STREAM.MSG.GET.ORDERS_64", {"seq": seq})["message"]
                for seq in (1, 2, 1 + TOKENS)
            ]
    assert [message["subject"] for message in found] == [
        "orders_64.0000", "orders_64.0001", "orders_64.0000",
    ]  # fmt: skip
    assert found[0]["data"] == found[2]["data"]
    assert all(first["data"] != second["data"] for first, second in pairwise(found))
