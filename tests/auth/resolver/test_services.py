"""The subjects by which JWTs are read and changed (nats-server: DirAccResolver.Start).

They are served in an account of a server, through its internal client.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from natsd import Server
from natsd.auth.jwt.token import encode
from natsd.auth.nkeys import KeyPair
from natsd.auth.resolver.directory_resolver import DirectoryResolver
from natsd.auth.resolver.jwt_directory import JwtDirectory
from natsd.auth.resolver.resolver import NotResolved
from natsd.auth.resolver.services import (
    ClaimsServices,
    ClaimsTrust,
    serve_directory,
    serve_updates,
)
from natsd.auth.resolver.synchronizing import OtherServers, PackExchange
from natsd.config.public_keys import Kind
from natsd.testing.jwts import ISSUED_AT, Operator, key
from tests.auth.fakes import NOW_S
from tests.waiting import eventually_within

OPERATOR = Operator()
A, B, SYSTEM = (OPERATOR.account(name) for name in ("A", "B", "SYS"))
TRUST = ClaimsTrust(
    operator=OPERATOR.key.public,
    operator_keys=frozenset((OPERATOR.key.public, OPERATOR.signing_key.public)),
    is_strict=False,
    system_account=SYSTEM.name,
)


@dataclass
class Served:
    """A directory whose services answer in the system account of a server."""

    server: Server
    resolver: DirectoryResolver
    services: ClaimsServices
    path: Path
    packs_to: str = ""  # subject on which the server gets packs

    @property
    def client(self) -> Any:
        return self.server.accounts.system.internal_client

    async def ask(self, subject: str, payload: str = "") -> Any:
        return json.loads(await self.client.request(subject, payload.encode()))


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(host="127.0.0.1", port=-1) as running:
        yield running


async def make(server: Server, path: Path, **settings: Any) -> Served:
    directory = JwtDirectory(path, lambda: NOW_S)
    resolver = DirectoryResolver(directory, timeout_s=2, **settings)
    await resolver.start()
    services = ClaimsServices(server, server.accounts.system.internal_client)
    return Served(server, resolver, services, path)


@pytest.fixture
async def served(server: Server, tmp_path: Path) -> AsyncIterator[Served]:
    made = await make(server, tmp_path, may_delete=True)
    serve_directory(made.services, made.resolver, TRUST)
    exchange = PackExchange(made.services, made.client, made.resolver, server.id, 3600)
    exchange.start()
    made.packs_to = exchange._inbox
    yield made
    await exchange.close()
    await made.services.close()
    await made.resolver.close()


@pytest.mark.parametrize(
    "subject",
    [
        f"$SYS.REQ.ACCOUNT.{A.name}.CLAIMS.UPDATE",
        f"$SYS.ACCOUNT.{A.name}.CLAIMS.UPDATE",
        "$SYS.REQ.CLAIMS.UPDATE",
    ],
)
async def test_an_update_is_kept(served: Served, subject: str) -> None:
    told = []

    async def changed(name: str, jwt: str) -> None:
        told.append((name, jwt))

    served.resolver.changed = changed
    answer = await served.ask(subject, A.jwt)
    assert answer["server"]["id"] == served.server.id
    assert answer["data"] == {"account": A.name, "code": 200, "message": "jwt updated"}
    assert (served.path / f"{A.name}.jwt").read_text() == A.jwt
    assert told == [(A.name, A.jwt)]
    looked_up = f"$SYS.REQ.ACCOUNT.{A.name}.CLAIMS.LOOKUP"
    assert await served.client.request(looked_up) == A.jwt.encode()


@pytest.mark.parametrize(
    ("account", "jwt", "named", "description"),
    [
        (A.name, "x", "n/a", "jwt update resulted in error - expected 3 chunks"),
        (A.name, A.user().jwt, "n/a", "jwt update resulted in error - not account claim"),
        (
            B.name,
            A.jwt,
            B.name,
            "jwt update resulted in error - subject does not match jwt content",
        ),
        (
            A.name,
            OPERATOR.account("A", signing_keys=["x", "y"]).jwt,
            A.name,
            'jwt validation failed - validation errors: ["x" is not a valid account signing key'
            ' "y" is not a valid account signing key]',
        ),
    ],
)
async def test_an_update_that_is_refused(
    served: Served, account: str, jwt: str, named: str, description: str
) -> None:
    answer = await served.ask(f"$SYS.REQ.ACCOUNT.{account}.CLAIMS.UPDATE", jwt)
    assert answer["error"] == {"account": named, "code": 500, "description": description}
    assert list(served.path.iterdir()) == []


async def test_an_expired_jwt_is_kept(served: Served) -> None:
    """As in nats-server: times are checked when the account is used."""
    expired = OPERATOR.account("A", exp=ISSUED_AT).jwt
    assert "data" in await served.ask("$SYS.REQ.CLAIMS.UPDATE", expired)


async def test_a_strict_operator_refuses_its_own_key(server: Server, tmp_path: Path) -> None:
    made = await make(server, tmp_path)
    strict = ClaimsTrust(
        operator=TRUST.operator,
        operator_keys=frozenset(),
        is_strict=True,
        system_account=SYSTEM.name,
    )
    serve_directory(made.services, made.resolver, strict)
    answer = await made.ask("$SYS.REQ.CLAIMS.UPDATE", A.jwt)
    assert answer["error"]["description"] == (
        "jwt update resulted in error - operator requires issuer to be a signing key"
    )
    signed = OPERATOR.account("A", by=OPERATOR.signing_key).jwt
    assert "data" in await made.ask("$SYS.REQ.CLAIMS.UPDATE", signed)
    await made.services.close()
    await made.resolver.close()


async def test_the_list_and_an_unknown_account(served: Served) -> None:
    for account in (A, B):
        await served.ask("$SYS.REQ.CLAIMS.UPDATE", account.jwt)
    answer = await served.ask("$SYS.REQ.CLAIMS.LIST")
    assert sorted(answer["data"]) == sorted([A.name, B.name])
    assert await served.client.request(f"$SYS.REQ.ACCOUNT.{SYSTEM.name}.CLAIMS.LOOKUP") == b""


def deletion(
    accounts: object, *, by: KeyPair = OPERATOR.key, subject: KeyPair | None = None
) -> str:
    body = {"accounts": accounts, "type": "generic", "version": 2}
    return encode({"iss": by.public, "sub": (subject or by).public, "nats": body}, by)


async def test_an_operator_deletes_accounts(served: Served) -> None:
    gone: list[str] = []
    served.resolver.deleted = gone.append
    await served.ask("$SYS.REQ.CLAIMS.UPDATE", A.jwt)
    answer = await served.ask("$SYS.REQ.CLAIMS.DELETE", deletion([A.name, B.name]))
    assert answer["data"] == {"code": 200, "message": "deleted 2 accounts"}
    assert gone == [A.name]
    assert [file.name for file in served.path.iterdir()] == [f"{A.name}.jwt.deleted"]


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (deletion([A.name], subject=A.key), "not self signed"),
        (deletion([A.name], by=key(Kind.OPERATOR, "other")), "not trusted"),
        (deletion("all"), "malformed request"),
        (deletion([5]), "malformed request"),
        (deletion(["../x"]), "malformed request"),
        (deletion([SYSTEM.name]), "not allowed to delete system account"),
        ("x", "expected 3 chunks"),
    ],
)
async def test_a_deletion_that_is_refused(served: Served, request_: str, reason: str) -> None:
    await served.ask("$SYS.REQ.CLAIMS.UPDATE", A.jwt)
    answer = await served.ask("$SYS.REQ.CLAIMS.DELETE", request_)
    assert answer["error"]["code"] == 500
    assert answer["error"]["description"].startswith("delete accounts request by ")
    assert answer["error"]["description"].endswith(f" failed - {reason}")
    assert (served.path / f"{A.name}.jwt").exists()


async def test_deletions_must_be_allowed(server: Server, tmp_path: Path) -> None:
    made = await make(server, tmp_path)
    serve_directory(made.services, made.resolver, TRUST)
    answer = await made.ask("$SYS.REQ.CLAIMS.DELETE", deletion([A.name]))
    assert "delete must be enabled in server config" in answer["error"]["description"]
    await made.services.close()
    await made.resolver.close()


async def test_a_cache_takes_only_accounts_that_it_has(server: Server, tmp_path: Path) -> None:
    made = await make(server, tmp_path)
    serve_directory(made.services, made.resolver, TRUST, has_account=lambda name: name == A.name)
    answer = await made.ask("$SYS.REQ.CLAIMS.UPDATE", A.jwt)
    assert answer["data"]["message"] == "jwt updated cache"
    answer = await made.ask("$SYS.REQ.CLAIMS.UPDATE", B.jwt)
    assert answer["data"]["message"] == "jwt update cache skipped"
    answer = await made.ask(f"$SYS.REQ.ACCOUNT.{A.name}.CLAIMS.UPDATE", "x")
    assert answer["error"]["account"] == A.name
    assert os.listdir(tmp_path) == [f"{A.name}.jwt"]
    await made.services.close()
    await made.resolver.close()


async def test_updates_without_a_directory(server: Server) -> None:
    services = ClaimsServices(server, server.accounts.system.internal_client)
    results: dict[str, bool | str] = {A.name: True, B.name: "account validation failed"}

    async def apply(name: str, _jwt: str) -> bool | str:
        return results.get(name, False)

    serve_updates(services, apply)
    client = server.accounts.system.internal_client
    for account, jwt, expected in (
        (A, A.jwt, {"account": A.name, "code": 200, "message": "jwt updated"}),
        (
            SYSTEM,
            SYSTEM.jwt,
            {"account": SYSTEM.name, "code": 200, "message": "jwt update skipped"},
        ),
        (
            B,
            B.jwt,
            {
                "account": B.name,
                "code": 500,
                "description": "jwt update resulted in error - account validation failed",
            },
        ),
        (
            A,
            "",
            {
                "account": A.name,
                "code": 500,
                "description": "jwt update error - request body is empty",
            },
        ),
    ):
        subject = f"$SYS.REQ.ACCOUNT.{account.name}.CLAIMS.UPDATE"
        answer = json.loads(await client.request(subject, jwt.encode()))
        assert answer.get("data", answer.get("error")) == expected
    await services.close()


async def test_a_pack_has_all_jwts_unless_the_digests_are_equal(served: Served) -> None:
    for account in (A, B):
        await served.ask("$SYS.REQ.CLAIMS.UPDATE", account.jwt)
    packed: list[bytes] = []
    served.client.subscribe("inbox", lambda _s, _r, _h, payload: packed.append(payload))
    served.client.publish("$SYS.REQ.CLAIMS.PACK", b"other", reply="inbox")
    await eventually_within(lambda: b"" in packed)
    assert sorted(packed[:-1]) == sorted(
        f"{account.name}|{account.jwt}".encode() for account in (A, B)
    )
    packed.clear()
    served.client.publish("$SYS.REQ.CLAIMS.PACK", served.resolver.digest, reply="inbox")
    await eventually_within(lambda: packed)
    assert packed == [b""]


async def test_servers_come_to_have_the_same_jwts(
    served: Served, server: Server, tmp_path: Path
) -> None:
    """A second directory, of another server's id, in the same account."""
    await served.ask("$SYS.REQ.CLAIMS.UPDATE", A.jwt)
    resolver = DirectoryResolver(JwtDirectory(tmp_path / "other", lambda: NOW_S), timeout_s=2)
    await resolver.start()
    services = ClaimsServices(server, served.client)
    exchange = PackExchange(services, served.client, resolver, "OTHER", 0.01)
    services.serve(exchange._inbox, exchange._merge)
    asking = asyncio.create_task(exchange._ask())
    await eventually_within(lambda: resolver.digest == served.resolver.digest)
    assert await resolver.fetch(A.name) == A.jwt
    asking.cancel()
    await services.close()
    await resolver.close()


async def test_the_subject_of_packs_cannot_be_guessed(served: Served) -> None:
    start = f"$SYS._INBOX_.{served.server.id}.PACK."
    other = PackExchange(
        served.services, served.client, served.resolver, served.server.id, interval_s=3600
    )
    assert served.packs_to.startswith(start)
    assert len(served.packs_to) == len(start) + 32
    assert served.packs_to != other._inbox


@pytest.mark.parametrize("line", ["x", "A|b", f"{A.name}|torn", f"{A.name}|{B.jwt}"])
async def test_bad_lines_of_a_pack_are_left_out(
    served: Served, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    served.client.publish(served.packs_to, f"{line}\n{B.name}|{B.jwt}".encode())
    await eventually_within(lambda: (served.path / f"{B.name}.jwt").exists())
    assert len(list(served.path.iterdir())) == 1
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1


async def test_what_is_missing_is_looked_up_at_other_servers(
    served: Served, tmp_path: Path
) -> None:
    await served.ask("$SYS.REQ.CLAIMS.UPDATE", A.jwt)
    cache = DirectoryResolver(
        JwtDirectory(tmp_path / "cache", lambda: NOW_S, is_cache=True), timeout_s=5
    )
    await cache.start()
    with pytest.raises(NotResolved, match="account jwt not found"):
        await cache.fetch(A.name)
    cache.peers = OtherServers(served.client, "OTHER", lambda: 1, answers_itself=False)
    assert await cache.fetch(A.name) == A.jwt
    assert (tmp_path / "cache" / f"{A.name}.jwt").exists()
    with pytest.raises(NotResolved, match="account jwt not found"):
        await cache.fetch(B.name)  # the only other server answered that it has none
    with pytest.raises(NotResolved, match="will only fetch valid account keys"):
        await cache.fetch("../x")
    await cache.close()


async def test_a_server_that_does_not_answer_is_waited_for_shortly(server: Server) -> None:
    client = server.accounts.system.internal_client
    assert (
        await OtherServers(client, "N", lambda: 1, answers_itself=False).lookup("A", 0.02) is None
    )
    assert await OtherServers(client, "N", lambda: 0, answers_itself=True).lookup("A", 20) is None
