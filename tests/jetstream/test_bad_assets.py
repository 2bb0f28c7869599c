"""Assets on disk whose configuration is invalid: each is offline with its reason.

Everything else is served.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import pytest

from natsd.jetstream.asset_file import read_asset, write_asset
from natsd.jetstream.consumer.files import ConsumerAsset, consumer_directory
from natsd.jetstream.errors import ErrorId
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from natsd.jetstream.models.stream import (
    Retention,
    StreamConfig,
    StreamSource,
    SubjectTransformConfig,
)
from natsd.jetstream.stream.files import StreamAsset
from natsd.store.crypto.vault import Vault
from natsd.store.disk.real_disk import RealDisk
from tests.jetstream.serving import ACCOUNT, account_of, ask, create, publish, serving
from tests.waiting import eventually_within

FOREVER_NS: Final = 2**63 - 1

BAD_STREAMS: Final[dict[str, dict[str, Any]]] = {
    "no transform": {"subject_transform": SubjectTransformConfig()},
    "no destination": {"subject_transform": SubjectTransformConfig(src="s.*")},
    "bad destination": {"subject_transform": SubjectTransformConfig(src="s.*", dest="{{bad(")},
    "bad subject": {"subjects": ["a..b"]},
    "bad sources": {"sources": [StreamSource(name="")]},
    "endless age": {"max_age": FOREVER_NS},
    "endless window": {"duplicate_window": FOREVER_NS},
    "negative age": {"max_age": -(2**63)},
    "another's name": {"name": "T"},
    "no name": {"name": ""},
    "odd replicas": {"num_replicas": -7},
}
BAD_CONSUMERS: Final[dict[str, dict[str, Any]]] = {
    "endless disuse": {"inactive_threshold": FOREVER_NS, "durable_name": "", "name": "C"},
    "endless wait": {"ack_wait": FOREVER_NS},
    "bad filter": {"filter_subject": "a..b"},
    "bad backoff": {"backoff": [-1, FOREVER_NS]},
    "negative limits": {"max_deliver": -(2**62), "max_ack_pending": -(2**62)},
    "endless pause": {"pause_until": FOREVER_NS},
    "another's name": {"durable_name": "D"},
    "bad sample": {"sample_freq": "many"},
}


def stream_directory(root: Path, name: str) -> Path:
    return root / "jetstream" / ACCOUNT / "streams" / name


def vault_of(root: Path) -> Vault:
    return Vault(RealDisk(), root / "jetstream", os.urandom)


@pytest.mark.parametrize("bad", BAD_STREAMS)
async def test_a_bad_stream_stops_no_other(tmp_path: Path, bad: str) -> None:
    async with serving(tmp_path) as jetstream:
        for name in ("GOOD", "S"):
            await create(jetstream, name, subjects=[f"{name.lower()}.*"])
            await publish(jetstream, f"{name.lower()}.x", b"kept")
    directory = stream_directory(tmp_path, "S")
    good = read_asset(vault_of(tmp_path), directory, StreamAsset)
    config = good.config.model_copy(update=BAD_STREAMS[bad])
    config = StreamConfig.model_construct(**dict(config))
    write_asset(vault_of(tmp_path), directory, good.model_copy(update={"config": config}))
    async with serving(tmp_path) as jetstream:
        account = account_of(jetstream)
        assert (await publish(jetstream, "good.x", b"more"))["seq"] == 2
        answer = json.loads((await ask(jetstream, "$JS.API.STREAM.INFO.S"))[0][1])
        if "S" in account.offline:
            assert answer["error"]["err_code"] == ErrorId.JSStreamOfflineReasonErrF.err_code
            assert account.offline["S"] in answer["error"]["description"]
        else:
            assert answer["state"]["last_seq"] == 1
    write_asset(vault_of(tmp_path), directory, good)
    async with serving(tmp_path) as jetstream:
        assert account_of(jetstream).stream("S").store.state().last_sequence == 1


@pytest.mark.parametrize("bad", BAD_CONSUMERS)
async def test_a_bad_consumer_stops_no_other_and_loses_nothing(tmp_path: Path, bad: str) -> None:
    async with serving(tmp_path) as jetstream:
        stream = await create(jetstream, "S", subjects=["s"], retention=Retention.INTEREST)
        for name in "CD":
            config = ConsumerConfig(durable_name=name, ack_policy=AckPolicy.EXPLICIT)
            await stream.create_consumer(config, "")
        await publish(jetstream, "s", b"kept")
    directory = consumer_directory(stream_directory(tmp_path, "S"), "C")
    good = read_asset(vault_of(tmp_path), directory, ConsumerAsset)
    config = good.config.model_copy(update=BAD_CONSUMERS[bad])
    write_asset(vault_of(tmp_path), directory, good.model_copy(update={"config": config}))
    async with serving(tmp_path) as jetstream:
        stream = account_of(jetstream).stream("S")
        assert "D" in stream.consumers
        assert "C" in {*stream.consumers, *stream.offline_consumers.reasons}
        await stream.delete_consumer("D")
        await eventually_within(lambda: not stream.readers.is_rechecking)
        if bad != "bad filter" or "C" in stream.offline_consumers.reasons:
            assert stream.store.state().msgs == 1
    write_asset(vault_of(tmp_path), directory, good)
    async with serving(tmp_path) as jetstream:
        assert account_of(jetstream).stream("S").consumer("C").config == good.config
