"""JetStream as a part of the server: where its files are, when it starts and when it stops."""

import asyncio
import json
import logging
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.errors import BadRequestError, ServiceUnavailableError

import natsd
from natsd import Server
from natsd.accounts import GLOBAL_ACCOUNT
from natsd.clients.listener import ListenError
from natsd.config.account_jetstream import StorageLimits
from natsd.config.jetstream_options import BatchLimits, JetStreamLimits, JetStreamOptions
from natsd.core.sizes import friendly_bytes
from natsd.server.jetstream import JetStreamError
from tests.server.leftovers import leftovers
from tests.server.loading import SlowLoading
from tests.server.streams import Stream
from tests.waiting import eventually_within

FIELDS = """
    server_id server_name version proto go host port headers max_payload jetstream client_id
    client_ip domain connect_info remote_account api_lvl natsd"""


def local(jetstream: Any = True, **settings: Any) -> Server:
    return Server(host="127.0.0.1", port=-1, jetstream=jetstream, **settings)


@asynccontextmanager
async def connected(server: Server) -> AsyncIterator[JetStreamContext]:
    client = await nats.connect(server.client_url)
    try:
        yield client.jetstream()
    finally:
        await client.close()


async def publish(server: Server, count: int = 3) -> None:
    async with connected(server) as stream:
        await stream.add_stream(name="S", subjects=["s.*"])
        for number in range(count):
            await stream.publish(f"s.{number}", b"%d" % number)


async def messages(server: Server) -> int:
    async with connected(server) as stream:
        return int((await stream.stream_info("S")).state.messages)


@pytest.mark.both_loops
async def test_what_was_acknowledged_is_there_again(tmp_path: Path) -> None:
    for expected in (0, 3, 6):
        async with local(store_dir=tmp_path) as server:
            if expected:
                assert await messages(server) == expected
            await publish(server)
    assert (tmp_path / "jetstream" / "$G" / "streams" / "S").is_dir()


async def test_one_server_may_start_again(tmp_path: Path) -> None:
    server = local(store_dir=tmp_path)
    async with server:
        await publish(server)
    assert server.jetstream is None
    async with server:
        assert await messages(server) == 3


async def test_without_a_directory_it_is_temporary() -> None:
    async with local() as one, local() as two:
        assert one.jetstream is not None
        assert two.jetstream is not None
        directories = [one.jetstream.directory, two.jetstream.directory]
        assert directories[0] != directories[1]
        await publish(one)
    assert not any(directory.parent.exists() for directory in directories)


@pytest.mark.both_loops
async def test_nothing_stays(tmp_path: Path) -> None:
    async with local(store_dir=tmp_path) as server:  # modules and files that are opened once
        await publish(server)
    del server
    before = leftovers()
    async with local(store_dir=tmp_path) as server:
        assert await messages(server) == 3
    del server
    await asyncio.sleep(0)
    assert not leftovers().new_since(before)


async def test_in_a_thread_of_its_own(tmp_path: Path) -> None:
    with local(store_dir=tmp_path, thread=True) as server:
        await publish(server)
    async with local(store_dir=tmp_path) as server:
        assert await messages(server) == 3


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (False, {}),
        (True, {"jetstream": True, "api_lvl": 4}),
        ({"domain": "hub"}, {"jetstream": True, "domain": "hub", "api_lvl": 4}),
    ],
)
async def test_info_tells_of_it(settings: Any, told: dict[str, Any]) -> None:
    """INFO names JetStream in the greeting, and in the INFO after the first PONG."""
    async with local(settings) as server:
        account = server.accounts[GLOBAL_ACCOUNT]
        for line in (server.info(7, "::1"), server.info(7, "::1", account)):
            info = json.loads(line.removeprefix(b"INFO "))
            found = {
                name: info[name] for name in ("jetstream", "domain", "api_lvl") if name in info
            }
            assert found == told
            order = list(info)
            assert order == sorted(order, key=FIELDS.split().index)


async def test_the_system_account_has_none() -> None:
    async with local() as server:
        assert server.jetstream is not None
        assert list(server.jetstream.accounts) == [GLOBAL_ACCOUNT]


async def test_who_waits_is_told_that_the_server_ends(tmp_path: Path) -> None:
    """Pull requests are answered 409 before the connection is closed."""
    async with local(store_dir=tmp_path) as server:
        await publish(server)
        async with connected(server) as stream:
            await stream.add_consumer("S", durable_name="C", filter_subject="s.none")
        watcher = await Stream.open(server.client_port)
        watcher.send(b"SUB inbox 1\r\nPUB $JS.API.CONSUMER.MSG.NEXT.S.C inbox 2\r\n{}\r\n")
        await watcher.sync()
        stopping = asyncio.create_task(server.stop())
        received = await watcher.read_until_closed()
        await stopping
        await watcher.close()
    assert b"409 Server Shutdown" in received


ROOT = Path(__file__).parents[2]


async def test_the_readmes_example_works() -> None:
    section = (ROOT / "README.md").read_text().partition("## JetStream")[2]
    match = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert match is not None
    body = "".join(f"    {line}\n" for line in match[1].splitlines())
    names: dict[str, Any] = {"nats": nats, "natsd": natsd}
    exec(f"async def main():\n{body}        await client.close()\n", names)
    await names["main"]()


PRINTED = [
    "orders.new two apples",
    "{'stream': 'S', 'seq': 3, 'batch': 'three', 'count': 3}",
    '{"stream":"HITS","seq":3,"val":"100000000000000000003"}',
    "10027 maximum number of streams reached\n1",
]


@pytest.mark.parametrize("place", range(len(PRINTED)))
def test_the_examples_of_the_documentation_work(tmp_path: Path, place: int) -> None:
    text = (ROOT / "docs" / "jetstream.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(programs) == len(PRINTED)
    program = tmp_path / "example.py"
    program.write_text(programs[place])
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    assert done.stdout == PRINTED[place] + "\n"


def test_the_documentation_names_every_setting() -> None:
    text = (ROOT / "docs" / "jetstream.md").read_text()
    for settings, prefix in (
        (JetStreamOptions, ""),
        (JetStreamLimits, "limits."),
        (BatchLimits, "limits.batch."),
    ):
        for setting in fields(settings):
            if setting.name not in ("limits", "batch"):
                assert f"`{prefix}{setting.name}`" in text
    for setting in fields(StorageLimits):
        assert f"`{setting.name}`" in text


# ---- errors that keep JetStream from starting


async def refused(**settings: Any) -> str:
    """Return why a server did not start; assert that nothing of it remains."""
    server = local(**settings)
    with pytest.raises(JetStreamError) as caught:
        await server.start()
    assert "\n" not in str(caught.value)
    assert server.jetstream is None
    return str(caught.value)


async def test_a_directory_in_use(tmp_path: Path) -> None:
    async with local(store_dir=tmp_path):
        text = await refused(store_dir=tmp_path)
    assert text.startswith(f"Can't start JetStream: {tmp_path / 'jetstream'} is in use by process ")
    async with local(store_dir=tmp_path):
        pass


async def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "jetstream").touch()
    assert (await refused(store_dir=tmp_path)).startswith(
        "Can't start JetStream: storage directory is not a directory: "
    )
    (tmp_path / "file").touch()
    assert "is not a directory" in await refused(store_dir=tmp_path / "file" / "below")


async def test_a_directory_that_cannot_be_made() -> None:
    text = await refused(store_dir="/proc/natsd")
    assert text.startswith(
        "Can't start JetStream: could not create storage directory - /proc/natsd"
    )


async def test_a_port_in_use_lets_go_of_the_store(tmp_path: Path) -> None:
    async with local(False) as other:
        taken = Server(host="127.0.0.1", port=other.client_port, jetstream=True, store_dir=tmp_path)
        with pytest.raises(ListenError):
            await taken.start()
        assert taken.jetstream is None
        async with local(store_dir=tmp_path):
            pass


async def test_a_start_that_is_cancelled_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from natsd.jetstream import jetstream

    entered = asyncio.Event()

    async def recover(_accounts: object, **_options: object) -> None:
        entered.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(jetstream, "recover_accounts", recover)
        starting = asyncio.create_task(local(store_dir=tmp_path).start())
        await entered.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    async with local(store_dir=tmp_path):
        pass


async def test_monitoring_of_stored_streams_begins_once_jetstream_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When monitoring answers, the import delays no answer."""
    async with local(store_dir=tmp_path) as server:
        await publish(server)
    loading, server = SlowLoading(monkeypatch), local(store_dir=tmp_path, http_port=-1)
    starting = asyncio.create_task(server.start())
    await loading.begun()
    assert server.http_port == 0
    loading.may_go_on.set()
    await starting
    assert server.http_port > 0
    await server.stop()


async def test_a_start_cancelled_while_it_is_loaded_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loading, before = SlowLoading(monkeypatch), leftovers()
    server = local()
    starting = asyncio.create_task(server.start())
    await loading.begun()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    loading.may_go_on.set()
    assert not server.is_ready
    del server, starting
    # The import ends in its thread.
    await eventually_within(lambda: not leftovers().new_since(before))


async def test_a_stop_waits_for_the_start(tmp_path: Path) -> None:
    server = local(store_dir=tmp_path)
    starting = asyncio.create_task(server.start())
    await asyncio.sleep(0)
    assert not server.is_ready
    with pytest.raises(RuntimeError, match="the server is running"):
        await server.start()
    await server.stop()
    await starting
    assert not server.is_ready
    await server.wait_closed()


# ---- limits of accounts


async def test_an_accounts_limits_are_told_and_kept(tmp_path: Path) -> None:
    """An account's limits are shown in its info and enforced."""
    accounts = {"$G": {"jetstream": {"max_file": "1M", "streams": 1}}}
    async with local(store_dir=tmp_path, accounts=accounts) as server:
        client = await nats.connect(server.client_url)
        info = await client.jetstream().account_info()
        assert (info.limits.max_storage, info.limits.max_streams) == (1 << 20, 1)
        await client.jetstream().add_stream(name="S", subjects=["s"])
        with pytest.raises(BadRequestError) as caught:
            await client.jetstream().add_stream(name="T", subjects=["t"])
        assert caught.value.err_code == 10027
        await client.close()


async def test_limits_of_tiers_are_told(tmp_path: Path) -> None:
    accounts = {"$G": {"jetstream": {"tiers": {"R1": {"max_file": "1M"}, "R3": {}}}}}
    async with local(store_dir=tmp_path, accounts=accounts) as server:
        client = await nats.connect(server.client_url)
        await client.jetstream().add_stream(name="S", subjects=["s"])
        answer = json.loads((await client.request("$JS.API.INFO")).data)
        assert answer["limits"]["max_storage"] == 0
        assert answer["tiers"]["R1"]["limits"]["max_storage"] == 1 << 20
        assert [answer["tiers"][name]["streams"] for name in ("R1", "R3")] == [1, 0]
        await client.close()


async def test_an_account_without_jetstream(tmp_path: Path) -> None:
    accounts = {"$G": {"jetstream": False}}
    async with local(store_dir=tmp_path, accounts=accounts) as server:
        client = await nats.connect(server.client_url)
        with pytest.raises(ServiceUnavailableError) as caught:
            await client.jetstream().account_info()
        assert caught.value.err_code == 10039
        await client.close()


async def test_no_account_may_use_more_than_there_is(tmp_path: Path) -> None:
    accounts = {"$G": {"jetstream": {"max_file": "2M"}}}
    with pytest.raises(JetStreamError, match="insufficient storage resources available"):
        await local({"max_file": "1M"}, store_dir=tmp_path, accounts=accounts).start()
    async with local({"max_file": "2M"}, store_dir=tmp_path, accounts=accounts):
        pass


# ---- log lines


async def test_the_lines_of_a_start_and_of_an_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    settings = {"max_mem": "1G", "max_file": 10, "domain": "hub", "key": "k" * 32, "sync": "2m"}
    async with local(settings, store_dir=tmp_path):
        pass
    lines = [record.getMessage() for record in caplog.records]
    began = lines.index("Starting JetStream")
    assert lines[began + 1 : began + 11] == [
        "---------------- JETSTREAM ----------------",
        "  Strict:          true",
        "  Max Memory:      1.00 GB",
        "  Max Storage:     10 B",
        f'  Store Directory: "{tmp_path}/jetstream"',
        "  Sync Interval:   2m0s",
        "  Domain:          hub",
        "  Encryption:      chachapoly",
        "  API Level:       4",
        "-------------------------------------------",
    ]
    assert lines[began + 11].startswith("Took ")
    assert lines[began + 11].endswith(" to start JetStream")
    assert lines[began + 12].startswith("Listening for client connections on")
    assert lines[-4:] == [
        "Initiating Shutdown...",
        "Initiating JetStream Shutdown...",
        "JetStream Shutdown",
        "Server Exiting..",
    ]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KB"),
        (1536 << 20, "1.50 GB"),
        (1 << 60, "1024.00 PB"),
    ],
)
def test_sizes_as_nats_server_writes_them(count: int, text: str) -> None:
    assert friendly_bytes(count) == text
