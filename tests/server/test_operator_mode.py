"""Operator mode, with the clients of nats-py over real sockets."""

import asyncio
import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import nats
import nats.js.errors
import pytest
from nats.aio.msg import Msg

from natsd import Server
from natsd.auth.jwt.account import AccountClaims
from natsd.auth.jwt.account_checks import account_issues
from natsd.auth.jwt.issues import Issues
from natsd.auth.jwt.token import encode
from natsd.auth.nkeys import KeyPair
from natsd.config import OptionsError
from natsd.config.public_keys import Kind
from natsd.server import operator_mode
from natsd.server.reload import ReloadError, reload
from natsd.testing.jwts import NO_USER_LIMITS, AccountKeys, Operator, UserKeys, key, token
from tests.server.operators import (
    OPERATOR,
    OPERATOR_JWT,
    SYSTEM,
    A,
    connected,
    directory,
    lines,
    memory,
    push,
    request,
)
from tests.waiting import eventually_within


async def test_users_of_two_accounts_do_not_hear_each_other() -> None:
    b = OPERATOR.account("B")
    async with memory(A, b) as server:
        async with (
            connected(server, A.user()) as first,
            connected(server, A.user("other")) as second,
            connected(server, b.user()) as stranger,
        ):
            heard, unheard = await second.subscribe("x"), await stranger.subscribe("x")
            await second.flush()
            await stranger.flush()
            await first.publish("x", b"hello")
            await first.flush()
            assert (await heard.next_msg(timeout=10)).data == b"hello"
            await stranger.flush()
            assert unheard.pending_msgs == 0
        assert {client.account_name for client in server.clients.values()} <= {A.name, b.name}


STRANGE_KEY = KeyPair.create(OPERATOR.key.kind)


@pytest.mark.parametrize(
    "user",
    [
        None,
        OPERATOR.account("unknown").user(),
        UserKeys(A.user("other").key, A.user().jwt),
        A.user(src=["10.0.0.0/8"]),
        A.user(exp=1_700_000_001),
    ],
    ids=["no JWT", "unknown account", "wrong key", "wrong address", "expired"],
)
async def test_who_is_refused(user: UserKeys | None) -> None:
    async with memory(A) as server, lines(server, user) as client:
        assert await client.next() == "-ERR 'Authorization Violation'"
        assert await client.next() == ""


async def test_an_account_that_another_operator_signed_has_no_users() -> None:
    stranger = Operator(STRANGE_KEY, STRANGE_KEY).account("A")
    async with memory(stranger) as server, lines(server, stranger.user()) as client:
        assert await client.next() == "-ERR 'Authorization Violation'"


async def test_permissions_of_a_user() -> None:
    user = A.user(pub={"allow": ["yes"]}, payload=3)
    async with memory(A) as server, lines(server, user) as client:
        assert await client.next() == "PONG"
        client.writer.write(b"PUB yes 2\r\nok\r\nPUB no 2\r\nok\r\n")
        assert await client.next() == "-ERR 'Permissions Violation for Publish to \"no\"'"
        client.writer.write(b"PUB yes 4\r\nlong\r\n")
        assert await client.next() == "-ERR 'Maximum Payload Violation'"


async def test_a_client_without_jwt_is_the_default_sentinel() -> None:
    sentinel = A.user(bearer_token=True)
    async with (
        memory(A, default_sentinel=sentinel.jwt) as server,
        connected(server, None) as client,
    ):
        await client.flush()
        assert [each.account_name for each in server.clients.values()] == [A.name]


async def test_accounts_are_pushed_changed_and_deleted(tmp_path: Path) -> None:
    """What nsc does: push, pull, revoke, delete."""
    refused = "-ERR 'Authorization Violation'"
    async with directory(tmp_path) as server, connected(server, SYSTEM.user()) as operator:
        async with lines(server, A.user()) as client:
            assert await client.next() == refused
        await push(operator, A)
        async with lines(server, A.user()) as client, connected(server, A.user("other")) as other:
            assert await client.next() == "PONG"
            revoked = {A.user().key.public: server.now_ns() // 10**9}
            await push(operator, OPERATOR.account("A", revocations=revoked))
            assert await client.next() == "-ERR 'User Authentication Revoked'"
            await other.flush()
            async with lines(server, A.user()) as again:
                assert await again.next() == refused
            listed = await request(operator, "$SYS.REQ.CLAIMS.LIST", "")
            assert sorted(listed["data"]) == sorted([SYSTEM.name, A.name])
            key = OPERATOR.key
            body = {"accounts": [A.name], "type": "generic", "version": 2}
            deletion = encode({"iss": key.public, "sub": key.public, "nats": body}, key)
            answer = await request(operator, "$SYS.REQ.CLAIMS.DELETE", deletion)
            assert answer["data"]["message"] == "deleted 1 accounts"
            await eventually_within(lambda: other.is_closed)
    assert (tmp_path / f"{A.name}.jwt.deleted").exists()


async def test_pushed_accounts_are_there_after_a_restart(tmp_path: Path) -> None:
    async with directory(tmp_path) as server, connected(server, SYSTEM.user()) as operator:
        await push(operator, A)
    async with directory(tmp_path) as server, connected(server, A.user()) as client:
        await client.flush()


async def test_a_changed_scope_closes_its_users(tmp_path: Path) -> None:
    def account(**template: Any) -> AccountKeys:
        scope = {
            "kind": "user_scope",
            "key": A.signing_key.public,
            "template": {**NO_USER_LIMITS, **template},
        }
        return OPERATOR.account("A", signing_keys=[scope])

    user = A.user(by=A.signing_key, is_scoped=True)
    async with directory(tmp_path) as server, connected(server, SYSTEM.user()) as operator:
        await push(operator, account(pub={"allow": ["{{name()}}.>"]}))
        async with connected(server, user) as client:
            await push(operator, account(pub={"allow": [">"]}))
            await eventually_within(lambda: client.is_closed)
        async with connected(server, user) as client:
            await client.flush()


async def test_new_default_permissions_hold_for_connected_users_without_own_ones() -> None:
    def account(**rules: Any) -> AccountKeys:
        return OPERATOR.account("A", default_permissions=rules)

    async with memory(account(pub={"deny": ["x"]})) as server:
        assert server.operator is not None
        change = server.operator.claimed.changed
        own = A.user("own", pub={"allow": ["y"]})
        async with lines(server, A.user()) as client, lines(server, own) as other:
            assert [await client.next(), await other.next()] == ["PONG", "PONG"]
            for each in (client, other):
                each.writer.write(b"SUB a 1\r\nSUB b q 2\r\nPING\r\n")
                assert await each.next() == "PONG"
            await change(A.name, account(pub={"deny": ["y"]}, sub={"deny": ["b"]}).jwt)
            assert await client.next() == (
                '-ERR \'Permissions Violation for Subscription to "b" using queue "q" (sid "2")\''
            )
            client.writer.write(b"PUB y 0\r\n\r\nPUB x 0\r\n\r\nPING\r\n")
            assert await client.next() == "-ERR 'Permissions Violation for Publish to \"y\"'"
            assert await client.next() == "PONG"
            await change(A.name, A.jwt)
            client.writer.write(b"PUB y 0\r\n\r\nSUB b 3\r\nPING\r\n")
            assert await client.next() == "PONG"
            other.writer.write(b"PUB y 0\r\n\r\nPUB b 0\r\n\r\nPING\r\n")
            assert await other.next() == "-ERR 'Permissions Violation for Publish to \"b\"'"
            assert await other.next() == "PONG"


async def test_fewer_connections_close_the_latest(tmp_path: Path) -> None:
    async with directory(tmp_path) as server, connected(server, SYSTEM.user()) as operator:
        await push(operator, A)
        async with connected(server, A.user()) as first, connected(server, A.user()) as second:
            await push(operator, OPERATOR.account("A", limits={"conn": 1}))
            await eventually_within(lambda: second.is_closed)
            await first.flush()


def exporter(**more: Any) -> AccountKeys:
    exports = [
        {"subject": "help", "type": "service", "token_req": True, **more},
        {"subject": "news.>", "type": "stream"},
    ]
    return OPERATOR.account("A", exports=exports)


def importer(activation: str) -> AccountKeys:
    imports = [
        {
            "subject": "help",
            "type": "service",
            "account": A.name,
            "local_subject": "ask",
            "token": activation,
        },
        {"subject": "news.>", "type": "stream", "account": A.name, "local_subject": "from_a.>"},
    ]
    return OPERATOR.account("B", imports=imports)


async def test_accounts_share_what_their_jwts_say(tmp_path: Path) -> None:
    """A service with an activation token, and a stream; the token is revoked later."""
    b = OPERATOR.account("B")
    activation = token("activation", b.name, A.key, {"subject": "help", "kind": "service"})
    async with directory(tmp_path) as server, connected(server, SYSTEM.user()) as operator:
        await push(operator, exporter())
        await push(operator, importer(activation))
        async with connected(server, A.user()) as one, connected(server, b.user()) as other:

            async def answer(message: Msg) -> None:
                await message.respond(b"yes")

            await one.subscribe("help", cb=answer)
            await one.flush()
            assert (await other.request("ask", timeout=10)).data == b"yes"
            news = await other.subscribe("from_a.>")
            await other.flush()
            await one.publish("news.today", b"sun")
            assert (await news.next_msg(timeout=10)).subject == "from_a.today"
            await push(operator, exporter(revocations={b.name: time.time_ns() // 10**9}))
            with pytest.raises(nats.errors.NoRespondersError):
                await other.request("ask", timeout=10)


async def test_an_account_without_activation_token_imports_nothing() -> None:
    async with memory(exporter(), importer("")) as server:
        async with connected(server, A.user()) as one:
            await one.subscribe("help")
            await one.flush()
            async with connected(server, OPERATOR.account("B").user()) as other:
                with pytest.raises(nats.errors.NoRespondersError):
                    await other.request("ask", timeout=10)


@pytest.mark.parametrize("is_scoped", [False, True])
@pytest.mark.parametrize("is_bearer", [False, True])
async def test_nobody_is_told_a_jwt_that_needs_no_signature(
    is_bearer: bool, is_scoped: bool
) -> None:
    """Neither the service of another account, nor the system account, nor a reader of CONNZ."""
    template = {**NO_USER_LIMITS, "bearer_token": is_bearer}
    scope = {"kind": "user_scope", "key": A.signing_key.public, "template": template}
    service = {"subject": "help", "type": "service"}
    helper = OPERATOR.account("B", exports=[service])
    asker = OPERATOR.account(
        "A",
        signing_keys=[scope],
        imports=[{**service, "account": helper.name, "share": True}],
    )
    user = (
        asker.user(by=asker.signing_key, is_scoped=True)
        if is_scoped
        else asker.user(bearer_token=is_bearer)
    )
    async with memory(helper, asker) as server, connected(server, SYSTEM.user()) as system:
        told: list[Any] = []

        async def note(event: Msg) -> None:
            told.append(json.loads(event.data)["client"])

        async def answer(request: Msg) -> None:
            assert request.headers is not None
            told.append(json.loads(request.headers["Nats-Request-Info"]))
            await request.respond(b"")

        await system.subscribe(f"$SYS.ACCOUNT.{asker.name}.*", cb=note)
        await system.flush()
        async with connected(server, helper.user()) as helping:
            await helping.subscribe("help", cb=answer)
            await helping.flush()
            async with connected(server, user) as asking:
                await asking.request("help", timeout=10)
                connz = await request(system, "$SYS.REQ.SERVER.PING.CONNZ", '{"auth":true}')
                rows = connz["data"]["connections"]
                told += [row for row in rows if row["account"] == asker.name]
        await eventually_within(lambda: len([each for each in told if "start" in each]) == 4)
    shown = None if is_bearer else user.jwt
    assert [each.get("jwt") for each in told] == [shown] * len(told)
    assert all(each["issuer_key"] for each in told)


STREAMS = {"disk_storage": 1 << 30, "mem_storage": 0, "streams": 1, "consumer": -1}


async def test_streams_of_an_account(tmp_path: Path) -> None:
    """Its limits hold, and its streams are there after a restart, before a client connects."""
    account = OPERATOR.account("A", limits=STREAMS)
    settings = {"jetstream": True, "store_dir": str(tmp_path)}
    async with memory(account, **settings) as server, connected(server, A.user()) as client:
        jetstream = client.jetstream()
        await jetstream.add_stream(name="one", subjects=["one"])
        await jetstream.publish("one", b"kept")
        with pytest.raises(nats.js.errors.Error, match="maximum number of streams reached"):
            await jetstream.add_stream(name="two", subjects=["two"])
    async with memory(account, **settings) as server:
        assert server.jetstream is not None
        assert account.name in server.jetstream.accounts
        async with connected(server, A.user()) as client:
            assert (await client.jetstream().stream_info("one")).state.messages == 1


async def test_an_account_without_streams() -> None:
    async with memory(A, jetstream=True) as server, connected(server, A.user()) as client:
        with pytest.raises(nats.js.errors.Error, match="not enabled"):
            await client.jetstream().account_info()


async def test_a_reload_takes_changed_jwts_from_the_settings() -> None:
    revoked = {A.user().key.public: time.time_ns() // 10**9}
    changed = OPERATOR.account("A", revocations=revoked)
    async with memory(A) as server, lines(server, A.user()) as client:
        assert await client.next() == "PONG"
        assert server.operator is not None
        options = replace(server.options, resolver_preload={A.name: changed.jwt})
        async with server.operator.changing(options):
            pass
        assert await client.next() == "-ERR 'User Authentication Revoked'"


async def test_a_reload_checks_jwts_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of an account with thousands of exports takes too long for the event loop."""
    threads = []

    def note(claims: AccountClaims, now_s: float) -> Issues:
        threads.append(threading.current_thread())
        return account_issues(claims, now_s)

    monkeypatch.setattr(operator_mode, "account_issues", note)
    async with memory(A) as server:
        assert server.operator is not None
        async with server.operator.changing(server.options):
            pass
    assert len(threads) == 4
    assert threading.current_thread() not in threads


async def test_a_reload_takes_changed_files(tmp_path: Path) -> None:
    revoked = {A.user().key.public: time.time_ns() // 10**9}
    async with directory(tmp_path) as server, connected(server, SYSTEM.user()) as operator:
        await push(operator, A)
        async with lines(server, A.user()) as client:
            assert await client.next() == "PONG"
            changed = OPERATOR.account("A", revocations=revoked).jwt
            await asyncio.to_thread((tmp_path / f"{A.name}.jwt").write_text, changed)
            assert server.operator is not None
            async with server.operator.changing(server.options):
                pass
            assert await client.next() == "-ERR 'User Authentication Revoked'"


async def test_a_reload_changes_the_default_sentinel() -> None:
    """Clients without a JWT are the new one, and so are those that were the old one."""
    first, second = A.user("first", bearer_token=True), A.user("second", bearer_token=True)
    async with memory(A, default_sentinel=first.jwt) as server:
        async with lines(server, None) as client:
            assert await client.next() == "PONG"
            server.reload(default_sentinel=second.jwt)
            async with lines(server, None) as other:
                assert await other.next() == "PONG"
                users = {each.authorized_user for each in server.clients.values()}
                assert users == {second.key.public}
            with pytest.raises(ReloadError, match="default sentinel must be a bearer token"):
                server.reload(default_sentinel=A.user("third").jwt)
            server.reload(default_sentinel="")
            assert await client.next() == "-ERR 'Authorization Violation'"


async def test_a_reload_changes_the_trusted_proxies() -> None:
    proxy, other = key(Kind.SERVER, "proxy"), key(Kind.SERVER, "other")
    user = A.user(proxy_required=True)

    def trusting(*keys: KeyPair) -> dict[str, object]:
        return {"trusted": [{"key": each.public} for each in keys]}

    async with memory(A, proxies=trusting(other)) as server:
        async with lines(server, user, proxy=proxy) as client:
            assert await client.next() == "-ERR 'Authorization Violation'"
        server.reload(proxies=trusting(other, proxy))
        async with lines(server, user, proxy=proxy) as client:
            assert await client.next() == "PONG"
            server.reload(proxies=trusting(other))
            assert await client.next() == "-ERR 'Authorization Violation'"


async def changed(server: Server, **settings: Any) -> None:
    """Reload as `Server.reload_file` does."""
    options = replace(server.options, **settings)
    assert server.operator is not None
    async with server.operator.changing(options):
        reload(server, options)


async def test_a_reload_removes_accounts_that_are_gone_from_the_settings() -> None:
    b = OPERATOR.account("B")
    async with (
        memory(A, b) as server,
        lines(server, A.user()) as stays,
        lines(server, b.user()) as c,
    ):
        assert await stays.next() == await c.next() == "PONG"
        await changed(server, resolver_preload={SYSTEM.name: SYSTEM.jwt, A.name: A.jwt})
        assert "-ERR" in await c.next()
        async with lines(server, b.user()) as refused:
            assert await refused.next() == "-ERR 'Authorization Violation'"
        await changed(server, resolver_preload={each.name: each.jwt for each in (SYSTEM, A, b)})
        async with lines(server, b.user()) as back, connected(server, A.user()):
            assert await back.next() == "PONG"
        stays.writer.write(b"PING\r\n")
        assert await stays.next() == "PONG"


async def test_a_reload_changes_the_settings_of_the_resolver(tmp_path: Path) -> None:
    b = OPERATOR.account("B")
    one, two = ({"type": "full", "dir": str(tmp_path / name), "limit": 2} for name in "12")
    async with directory(tmp_path / "1", limit=2) as server:
        async with connected(server, SYSTEM.user()) as operator:
            await push(operator, A)
            answer = await request(operator, "$SYS.REQ.CLAIMS.UPDATE", b.jwt)
            assert "store is full" in answer["error"]["description"]
            await changed(server, resolver=one | {"limit": 3})
            await push(operator, b)
            await changed(server, resolver=two)
            await push(operator, b)
            assert (tmp_path / "2" / f"{b.name}.jwt").exists()
            await changed(server, resolver=one)
            answer = await request(operator, "$SYS.REQ.CLAIMS.LIST", "")
            assert {A.name, b.name} <= set(answer["data"])


async def test_a_resolver_that_cannot_start_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    async with directory(tmp_path) as server, connected(server, SYSTEM.user()) as operator:
        before = server.options
        with pytest.raises(OptionsError, match=r"resolver: .*file"):
            await changed(server, resolver={"type": "full", "dir": str(tmp_path / "file")})
        with pytest.raises(OptionsError, match="resolver preloads only available for writeable"):
            await changed(server, resolver="URL(http://127.0.0.1:1/)")
        with pytest.raises(ReloadError, match="port: old=-1, new=1"):
            await changed(server, resolver={"type": "full", "dir": str(tmp_path)}, port=1)
        with pytest.raises(OptionsError, match="only by a reload of the configuration file"):
            server.reload(resolver="MEM")
        assert server.options is before
        await push(operator, A)


async def test_a_reload_changes_the_pinned_accounts() -> None:
    b = OPERATOR.account("B")
    async with memory(A, b) as server, lines(server, b.user()) as client:
        assert await client.next() == "PONG"
        await changed(server, resolver_pinned_accounts=(A.name,))
        async with lines(server, b.user()) as refused, connected(server, A.user()):
            assert await refused.next() == "-ERR 'Authorization Violation'"
        await changed(server, resolver_pinned_accounts=())
        async with lines(server, b.user()) as accepted:
            assert await accepted.next() == "PONG"


async def test_many_clients_log_in_at_once() -> None:
    async with memory(A) as server:
        async with asyncio.timeout(20):
            users = [A.user(f"user{number}") for number in range(20)]
            clients = await asyncio.gather(*(connected(server, u).__aenter__() for u in users))
        assert len(server.clients) == 20
        await asyncio.gather(*(client.close() for client in clients))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"resolver": None}, "operators require an account resolver to be configured"),
        ({"resolver_preload": {A.name: OPERATOR_JWT}}, f'preload account error for "{A.name}"'),
    ],
)
async def test_settings_that_do_not_start(settings: dict[str, Any], text: str) -> None:
    given = {"operators": [OPERATOR_JWT], "resolver": "MEMORY", **settings}
    with pytest.raises(OptionsError, match=text):
        async with Server(host="127.0.0.1", port=-1, **given):
            pass
