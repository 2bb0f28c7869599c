"""JetStream in many accounts: apart from each other, and changed while the server runs.

- What an account stores, uses and is refused concerns no other account, except for the limits of
  the server.
- JetStream of an account is enabled, changed and disabled at any time. Nothing that is stored is
  lost by that: the files of an account go with a purge only.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from natsd.accounts import Account
from natsd.cli import main
from natsd.jetstream.account_resources import why_no_directory
from natsd.jetstream.errors import ApiError, ErrorId
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.account import AccountLimits
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.served_accounts import AccountNameError
from natsd.jetstream.tiers import FLAT, UNLIMITED, AccountTiers
from tests.jetstream.serving import build, tiers_of
from tests.waiting import eventually_within

KEY = "a key of sixteen"


class Accounts:
    """A JetStream, and accounts that ask it."""

    def __init__(self, jetstream: JetStream) -> None:
        self.jetstream = jetstream
        self._accounts: dict[str, Account] = {}

    def __getitem__(self, name: str) -> Account:
        if name not in self._accounts:
            self._accounts[name] = Account(name, self.jetstream.reactor)
        return self._accounts[name]

    async def configure(self, name: str, limits: AccountLimits | AccountTiers | None) -> None:
        await self.jetstream.configure_account(self[name], tiers_of(limits))

    async def disable(self, name: str) -> None:
        await self.jetstream.configure_account(self[name], {})

    async def ask(self, account: str, subject: str, body: Any = b"") -> dict[str, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = await self[account].internal_client.request(subject, data, timeout_s=20)
        return dict(json.loads(answer))

    async def error(self, account: str, subject: str, body: Any = b"") -> int:
        answer = await self.ask(account, subject, body)
        return int(answer.get("error", {}).get("err_code", 0))

    async def create(self, account: str, name: str, **settings: Any) -> int:
        """Create a stream; return the code of the error, or 0."""
        body = {"name": name, "subjects": [f"{name}.>"], **settings}
        return await self.error(account, f"$JS.API.STREAM.CREATE.{name}", body)

    async def count(self, account: str, stream: str) -> int:
        answer = await self.ask(account, f"$JS.API.STREAM.INFO.{stream}")
        return int(answer["state"]["messages"])

    def close(self) -> None:
        for account in self._accounts.values():
            account.close()


@asynccontextmanager
async def accounts_in(
    directory: Path, first: dict[str, AccountTiers] | None = None, **options: Any
) -> AsyncIterator[Accounts]:
    """Yield a JetStream that was started with these accounts."""
    limits = first or {}
    jetstream = build(directory, limits_of=lambda account: limits[account.name], **options)
    accounts = Accounts(jetstream)
    await jetstream.start([accounts[name] for name in limits])
    try:
        yield accounts
    finally:
        await jetstream.stop()
        accounts.close()
        jetstream.reactor.close()


def contents(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in directory.rglob("*.*") if path.is_file()]


BOTH = {"A": UNLIMITED, "B": UNLIMITED}


async def test_accounts_are_apart(tmp_path: Path) -> None:
    """The same names and subjects are used in both, and each has its own directory."""
    async with accounts_in(tmp_path, BOTH) as accounts:
        for name in "AB":
            assert await accounts.create(name, "S") == 0
        for count, name in enumerate("AB", start=1):
            for _ in range(count):
                assert (await accounts.ask(name, "S.x", b"body"))["stream"] == "S"
        assert [await accounts.count(name, "S") for name in "AB"] == [1, 2]
        infos = [await accounts.ask(name, "$JS.API.INFO") for name in "AB"]
        assert 0 < infos[0]["storage"] < infos[1]["storage"]
        assert [info["streams"] for info in infos] == [1, 1]
        assert accounts.jetstream.usage.file_used == sum(info["storage"] for info in infos)
        assert await accounts.error("A", "$JS.API.STREAM.DELETE.S") == 0
        assert await accounts.count("B", "S") == 2
    assert (tmp_path / "jetstream/B/streams/S/meta.json").exists()
    async with accounts_in(tmp_path, BOTH) as accounts:
        assert await accounts.error("A", "$JS.API.STREAM.INFO.S") == 10059
        assert await accounts.count("B", "S") == 2


async def test_each_accounts_streams_are_encrypted(tmp_path: Path) -> None:
    """A stream's files are encrypted for its account and name: they open nowhere else."""
    async with accounts_in(tmp_path, BOTH, key=KEY) as accounts:
        for name in "AB":
            assert await accounts.create(name, "S") == 0
            await accounts.ask(name, "S.x", f"secret of {name}".encode())
    files = contents(tmp_path)
    assert files
    assert not any(b"secret of" in content for content in files)
    async with accounts_in(tmp_path, BOTH, key=KEY) as accounts:
        for name in "AB":
            got = await accounts.ask(name, "$JS.API.STREAM.MSG.GET.S", {"seq": 1})
            assert got["message"]["data"]


async def test_disabled_and_enabled_again(tmp_path: Path) -> None:
    """Files stay and are served again; memory streams are gone, as on nats-server."""
    async with accounts_in(tmp_path, BOTH) as accounts:
        usage = accounts.jetstream.usage
        for name in "AB":
            assert await accounts.create(name, "S", max_bytes=1000, allow_direct=True) == 0
            await accounts.ask(name, "S.x", b"body")
            consumer = {"durable_name": "C", "ack_policy": "explicit"}
            create = {"stream_name": "S", "config": consumer}
            assert await accounts.error(name, "$JS.API.CONSUMER.DURABLE.CREATE.S.C", create) == 0
        assert await accounts.create("A", "M", storage="memory") == 0
        await accounts.ask("A", "M.x", b"body")
        of_one = usage.file_used // 2
        await accounts.disable("A")
        assert list(accounts.jetstream.accounts) == ["B"]
        assert (usage.file_used, usage.file_reserved, usage.memory_used) == (of_one, 1000, 0)
        assert await accounts.error("A", "$JS.API.STREAM.INFO.S") == 10039
        for gone in (b"S.x", b"$JS.API.CONSUMER.MSG.NEXT.S.C", b"$JS.API.DIRECT.GET.S"):
            assert accounts["A"].publisher.publish(gone, reply=b"a") == 0
        assert await accounts.count("B", "S") == 1
        await accounts.disable("A")  # it is no error to disable it again
        await accounts.configure("A", None)
        assert await accounts.count("A", "S") == 1
        assert (usage.file_used, usage.file_reserved) == (2 * of_one, 2000)
        assert await accounts.error("A", "$JS.API.STREAM.INFO.M") == 10059
        assert (await accounts.ask("A", "S.x", b"body"))["seq"] == 2
        data = await accounts["A"].internal_client.request("$JS.API.CONSUMER.MSG.NEXT.S.C")
        assert data == b"body"


async def test_disabled_under_load_loses_nothing(tmp_path: Path) -> None:
    """Every message that was acknowledged before is there when JetStream is enabled again."""
    async with accounts_in(tmp_path, BOTH) as accounts:
        assert await accounts.create("A", "S") == 0
        acknowledged, sent, is_over = dict[int, int](), 0, False

        def note(subject: str, _reply: str | None, _headers: bytes, data: bytes) -> None:
            acknowledged[json.loads(data)["seq"]] = int(subject.removeprefix("acks."))

        accounts["A"].internal_client.subscribe("acks.*", note)

        async def publish() -> None:
            nonlocal sent
            while not is_over:
                for _ in range(50):
                    sent += 1
                    reply = f"acks.{sent}"
                    accounts["A"].internal_client.publish("S.x", b"%d" % sent, reply=reply)
                await asyncio.sleep(0)

        publishing = asyncio.create_task(publish())
        for times in range(1, 4):
            await eventually_within(lambda times=times: len(acknowledged) >= 200 * times)
            await accounts.disable("A")
            await accounts.configure("A", None)
        is_over = True
        await publishing
        known = list(acknowledged)
        assert await accounts.count("A", "S") >= len(known)
        for sequence in known[::20]:
            got = await accounts.ask("A", "$JS.API.STREAM.MSG.GET.S", {"seq": sequence})
            assert int(base64.b64decode(got["message"]["data"])) == acknowledged[sequence]


async def test_requests_wait_while_it_is_enabled(tmp_path: Path) -> None:
    async with accounts_in(tmp_path, {"A": UNLIMITED}) as accounts:
        assert await accounts.create("A", "S") == 0
        await accounts.disable("A")
        accounts.jetstream.api.hold(accounts["A"])
        asking = asyncio.create_task(accounts.ask("A", "$JS.API.STREAM.INFO.S"))
        await asyncio.sleep(0)
        await accounts.configure("A", None)
        assert (await asking)["config"]["name"] == "S"


async def test_limits_shrink_below_what_is_used(tmp_path: Path) -> None:
    """What exists stays; more is refused with the errors of nats-server, until there is room."""
    async with accounts_in(tmp_path, BOTH) as accounts:
        for name in ("S", "T"):
            assert await accounts.create("A", name) == 0
        for _ in range(10):
            await accounts.ask("A", "S.x", bytes(100))
        await accounts.configure("A", AccountLimits(max_storage=500, max_streams=1))
        assert [await accounts.count("A", name) for name in "ST"] == [10, 0]
        refused = (await accounts.ask("A", "T.x", b""))["error"]
        assert (refused["code"], refused["err_code"]) == (400, 10002)
        assert await accounts.create("A", "U") == ErrorId.JSMaximumStreamsLimitErr.err_code
        await accounts.configure("A", AccountLimits(max_storage=500))
        reserved = ErrorId.JSStorageResourcesExceededErr.err_code
        assert await accounts.create("A", "U", max_bytes=501) == reserved
        assert await accounts.error("A", "$JS.API.STREAM.PURGE.S") == 0
        assert (await accounts.ask("A", "T.x", b""))["seq"] == 1
        info = await accounts.ask("A", "$JS.API.INFO")
        assert info["limits"]["max_storage"] == 500


async def test_from_flat_limits_to_tiers_and_back(tmp_path: Path) -> None:
    """Usage and reservations move with the streams; a stream without a tier takes no messages."""
    async with accounts_in(tmp_path, {"A": UNLIMITED}) as accounts:
        assert await accounts.create("A", "S", max_bytes=10_000) == 0
        await accounts.ask("A", "S.x", b"body")
        used = (await accounts.ask("A", "$JS.API.INFO"))["storage"]
        await accounts.configure("A", {"R1": AccountLimits(max_storage=20_000)})
        info = await accounts.ask("A", "$JS.API.INFO")
        assert (info["storage"], info["reserved_storage"]) == (used, 10_000)
        tier = info["tiers"]["R1"]
        assert (tier["storage"], tier["reserved_storage"], tier["streams"]) == (used, 10_000, 1)
        await accounts.configure("A", {"R3": AccountLimits()})
        assert await accounts.error("A", "S.x", b"body") == ErrorId.JSNoLimitsErr.err_code
        assert (await accounts.ask("A", "$JS.API.INFO"))["tiers"]["R3"]["streams"] == 0
        await accounts.configure("A", None)
        assert (await accounts.ask("A", "S.x", b"body"))["seq"] == 2
        assert await accounts.error("A", "$JS.API.STREAM.DELETE.S") == 0
        usage = accounts.jetstream.usage
        assert (usage.file_used, usage.file_reserved) == (0, 0)


async def test_limits_change_while_a_stream_is_created(tmp_path: Path) -> None:
    """The room that a create has claimed is counted in the tier that holds afterwards."""
    async with accounts_in(tmp_path, {"A": UNLIMITED}) as accounts:
        creating = asyncio.create_task(accounts.create("A", "S", max_bytes=700))
        served = accounts.jetstream.accounts["A"]
        for _ in range(1000):
            if not served.tiers.file_reserved:
                await asyncio.sleep(0)
        await accounts.configure("A", {"R1": AccountLimits(max_storage=1000)})
        assert await creating == 0
        assert served.tiers.of(1).usage.file_reserved == 700
        refused = ErrorId.JSStorageResourcesExceededErr.err_code
        assert await accounts.create("A", "T", max_bytes=301) == refused
        assert await accounts.create("A", "T", max_bytes=300) == 0


async def test_accounts_share_what_the_server_has(tmp_path: Path) -> None:
    half = AccountLimits(max_storage=500)
    async with accounts_in(tmp_path, BOTH, max_file_store=1000) as accounts:
        await accounts.configure("A", half)
        await accounts.configure("B", half)
        with pytest.raises(ApiError) as caught:
            await accounts.configure("B", AccountLimits(max_storage=501))
        assert caught.value.error_id is ErrorId.JSStorageResourcesExceededErr
        assert (await accounts.ask("B", "$JS.API.INFO"))["limits"]["max_storage"] == 500
        with pytest.raises(ApiError):
            await accounts.configure("C", AccountLimits(max_storage=1))
        assert await accounts.error("C", "$JS.API.INFO") == 10039
        await accounts.configure("A", None)
        assert await accounts.create("A", "S", max_bytes=800) == 0
        refused = ErrorId.JSStorageResourcesExceededErr.err_code
        assert await accounts.create("B", "S", max_bytes=201) == refused
        assert await accounts.create("B", "S", max_bytes=200) == 0


async def test_a_start_needs_what_the_accounts_may_use_together(tmp_path: Path) -> None:
    half: AccountTiers = {FLAT: AccountLimits(max_memory=600)}
    with pytest.raises(ApiError, match="insufficient memory"):
        async with accounts_in(tmp_path, {"A": half, "B": half}, max_memory_store=1000):
            pass


async def test_an_account_that_is_removed_keeps_its_files(tmp_path: Path) -> None:
    """They are served to an account of that name that is made later, and go with a purge."""
    async with accounts_in(tmp_path, BOTH) as accounts:
        assert await accounts.create("A", "S") == 0
        await accounts.ask("A", "S.x", b"body")
        await accounts.jetstream.remove_account(accounts["A"])
        assert accounts["A"].publisher.publish(b"$JS.API.INFO", reply=b"a") == 0
        again = Account("A", accounts.jetstream.reactor)
        await accounts.jetstream.configure_account(again, UNLIMITED)
        answer = json.loads(await again.internal_client.request("$JS.API.STREAM.INFO.S"))
        assert answer["state"]["messages"] == 1
        await accounts.jetstream.remove_account(accounts["A"])  # the former account has nothing
        assert accounts.jetstream.accounts["A"].account is again
        again.close()


async def test_accounts_on_disk_that_are_not_served(tmp_path: Path) -> None:
    async with accounts_in(tmp_path, BOTH) as accounts:
        assert await accounts.create("A", "S") == 0
        assert await accounts.create("B", "S") == 0
    async with accounts_in(tmp_path, {"B": UNLIMITED, "C": {}}) as accounts:
        assert accounts.jetstream.unserved == {"A": 1}
        system = Account("$SYS", accounts.jetstream.reactor, is_system=True)
        accounts.jetstream.api.refuse(system)
        for name in ("nobody", "B", "A"):
            purge = f"$JS.API.ACCOUNT.PURGE.{name}"
            answer = json.loads(await system.internal_client.request(purge))
            assert answer["initiated"] is True
        assert sorted(p.name for p in (tmp_path / "jetstream").iterdir() if p.is_dir()) == ["B"]
        assert not accounts.jetstream.accounts["B"].streams
        system.close()
    async with accounts_in(tmp_path, BOTH) as accounts:
        assert await accounts.error("A", "$JS.API.STREAM.INFO.S") == 10059


@pytest.mark.parametrize(
    "name", ["", "..", "a/b", "a\\b", "natsd.lock", "journal.0", "x.removed", "x" * 256]
)
async def test_names_that_no_directory_can_have(tmp_path: Path, name: str) -> None:
    assert why_no_directory(name)
    with pytest.raises(AccountNameError):
        async with accounts_in(tmp_path, {name: UNLIMITED}):
            pass
    async with accounts_in(tmp_path) as accounts:
        with pytest.raises(AccountNameError, match="JetStream of account"):
            await accounts.configure(name, None)


@pytest.mark.parametrize(
    "name", ["$G", "ACC", "a b", "Ünïcode", "AB4QPD2QTXR", ".hidden", "x" * 255]
)
def test_names_that_directories_have(name: str) -> None:
    assert bool(why_no_directory(name)) is (name == "a b")


async def test_restarts_with_a_purge_that_was_cut_off(tmp_path: Path) -> None:
    (tmp_path / "jetstream/A.removed/streams/S").mkdir(parents=True)
    async with accounts_in(tmp_path, BOTH):
        assert not (tmp_path / "jetstream/A.removed").exists()


async def test_a_new_account_fills_its_mirrors(tmp_path: Path) -> None:
    """Also one that had no directory when the server started."""
    async with accounts_in(tmp_path, {"A": UNLIMITED}) as accounts:
        assert await accounts.create("A", "S") == 0
        config = StreamConfig(name="M", mirror={"name": "S"})
        mirror, _ = await accounts.jetstream.accounts["A"].create_stream(config)
        await accounts.ask("A", "S.x", b"body")
        await eventually_within(lambda: mirror.store.state().msgs == 1)


async def test_many_accounts_start_together(tmp_path: Path) -> None:
    """A stream of each of fifty accounts is recovered, and mirrors of other streams go on."""
    first = dict.fromkeys((f"A{number}" for number in range(50)), UNLIMITED)
    async with accounts_in(tmp_path, first) as accounts:
        for name in first:
            assert await accounts.create(name, "S") == 0
    async with accounts_in(tmp_path, first) as accounts:
        assert all(list(each.streams) == ["S"] for each in accounts.jetstream.accounts.values())
        config = StreamConfig(name="M", mirror={"name": "S"})
        mirror, _ = await accounts.jetstream.accounts["A7"].create_stream(config)
        await accounts.ask("A7", "S.x", b"body")
        await eventually_within(lambda: mirror.store.state().msgs == 1)


def test_store_commands_take_many_accounts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`check` looks at all accounts; a snapshot of one account's stream is restored to another."""

    async def fill() -> None:
        async with accounts_in(tmp_path, BOTH) as accounts:
            for name in "AB":
                assert await accounts.create(name, f"OF{name}") == 0
                await accounts.ask(name, f"OF{name}.x", b"body")

    async def count() -> int:
        async with accounts_in(tmp_path, BOTH) as accounts:
            return await accounts.count("B", "OFA")

    asyncio.run(fill())
    root, snapshot = str(tmp_path / "jetstream"), str(tmp_path / "a.snapshot")
    assert main(["store", "check", root]) == 0
    assert capsys.readouterr().out.startswith("2 streams, 2 blocks, 2 messages")
    assert main(["store", "snapshot", f"{root}/A/streams/OFA", snapshot]) == 0
    assert main(["store", "restore", snapshot, root, "--account", "../A"]) == 1
    assert "cannot be the name of a directory" in capsys.readouterr().err
    assert main(["store", "restore", snapshot, root, "--account", "B"]) == 0
    assert asyncio.run(count()) == 1
