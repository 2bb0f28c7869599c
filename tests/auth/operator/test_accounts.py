"""The accounts that JWTs describe: looked up, verified, kept, ended."""

import asyncio
from typing import Any

import pytest

from natsd.auth.jwt.activation import ActivationClaims
from natsd.auth.operator.accounts import AccountEnd, AccountUnavailable, ClaimedAccounts
from natsd.auth.operator.activations import check_activation
from natsd.auth.operator.trust import read_trust
from natsd.config import Options, make_options
from natsd.config.public_keys import Kind
from natsd.testing.jwts import ISSUED_AT, Operator, key, token
from tests.auth.fakes import NOW_S, CountingResolver, Listener
from tests.waiting import eventually_within

OPERATOR = Operator()
A, B = OPERATOR.account("A"), OPERATOR.account("B")
assert ActivationClaims.KIND == "activation"


class Made:
    """Accounts over a resolver in memory, with a clock of their own."""

    def __init__(self, resolver: CountingResolver | None = None, **operator: Any) -> None:
        self.now_s = NOW_S
        self.resolver = resolver or CountingResolver()
        self.listener = Listener()
        options = make_options(Options(), operators=[OPERATOR.jwt(**operator)], resolver="MEMORY")
        self.accounts = ClaimedAccounts(
            self.resolver, read_trust(options), self.listener, lambda: self.now_s
        )


async def test_an_account_is_looked_up_once_and_kept() -> None:
    made = Made()
    made.resolver.jwts[A.name] = A.jwt
    assert made.accounts.get(A.name) is None
    found = await asyncio.gather(*(made.accounts.require(A.name) for _ in range(10)))
    assert len(set(map(id, found))) == 1
    assert made.resolver.asked == [A.name]
    assert made.accounts.get(A.name) is found[0]
    assert made.listener.changed == [(None, found[0])]
    assert list(found[0].signers) == [A.name]


@pytest.mark.parametrize(
    ("jwt", "text"),
    [
        ("", "expected 3 chunks"),
        (B.jwt, "account validation failed"),
        (A.user().jwt, "not account claim"),
        (OPERATOR.account("A", by=key(Kind.OPERATOR, "other")).jwt, "account validation failed"),
        (OPERATOR.account("A", by=A.key).jwt, "account validation failed"),
        (OPERATOR.account("A", exp=ISSUED_AT + 1).jwt, "account validation failed"),
        (OPERATOR.account("A", signing_keys=["x"]).jwt, "account validation failed"),
    ],
)
async def test_what_no_operator_signed_is_no_account(jwt: str, text: str) -> None:
    made = Made()
    made.resolver.jwts[A.name] = jwt
    with pytest.raises(AccountUnavailable, match=text):
        await made.accounts.require(A.name)
    assert made.listener.changed == []


async def test_what_is_missing_is_not_looked_up_at_once_again() -> None:
    made = Made()
    for _ in range(3):
        with pytest.raises(AccountUnavailable, match="account missing"):
            await made.accounts.require(A.name)
    assert made.resolver.asked == [A.name]
    await made.accounts.changed(A.name, A.jwt)  # the resolver has it now
    made.resolver.jwts[A.name] = A.jwt
    assert (await made.accounts.require(A.name)).name == A.name


class SlowResolver(CountingResolver):
    """Reads the JWT of one account, and returns it when `may_return` is set."""

    def __init__(self, name: str, jwts: dict[str, str]) -> None:
        super().__init__(jwts)
        self.name = name
        self.has_read = asyncio.Event()
        self.may_return = asyncio.Event()

    async def fetch(self, name: str) -> str:
        jwt = await super().fetch(name)
        if name == self.name:
            self.has_read.set()
            await self.may_return.wait()
        return jwt


CHANGED = OPERATOR.account("A", revocations={"*": ISSUED_AT})


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_change_during_a_lookup_counts(is_deleted: bool) -> None:
    resolver = SlowResolver(A.name, {A.name: A.jwt})
    accounts = Made(resolver).accounts
    asking = asyncio.create_task(accounts.require(A.name))
    await resolver.has_read.wait()
    if is_deleted:
        del resolver.jwts[A.name]
        accounts.deleted(A.name)
        resolver.may_return.set()
        with pytest.raises(AccountUnavailable, match="account missing"):
            await asking
        assert A.name not in accounts
    else:
        resolver.jwts[A.name] = CHANGED.jwt
        await accounts.changed(A.name, CHANGED.jwt)
        resolver.may_return.set()
        assert (await asking).jwt == CHANGED.jwt
    assert resolver.asked == [A.name] * 2


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_change_while_the_exporters_are_looked_up_counts(is_deleted: bool) -> None:
    imports = [{"subject": "x", "type": "stream", "account": B.name}]
    importer = OPERATOR.account("A", imports=imports)
    resolver = SlowResolver(B.name, {A.name: importer.jwt, B.name: B.jwt})
    accounts = Made(resolver).accounts
    asking = asyncio.create_task(accounts.require(A.name))
    await resolver.has_read.wait()
    if is_deleted:
        accounts.deleted(A.name)
        resolver.may_return.set()
        with pytest.raises(AccountUnavailable, match="account missing"):
            await asking
    else:
        await accounts.changed(A.name, CHANGED.jwt)
        resolver.may_return.set()
        assert (await asking).jwt == CHANGED.jwt


async def test_a_name_that_is_no_key_is_not_looked_up() -> None:
    made = Made()
    with pytest.raises(AccountUnavailable, match="will only fetch valid account keys"):
        await made.accounts.require("../../etc/passwd")
    assert made.resolver.asked == []


async def test_lookups_at_a_time_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("natsd.auth.operator.accounts.LOOKUPS_MAX", 3)
    made = Made()
    names = [OPERATOR.account(str(number)).name for number in range(5)]
    found = await asyncio.gather(*map(made.accounts.require, names), return_exceptions=True)
    assert [str(each) for each in found].count("too many accounts are looked up now") == 2


async def test_a_strict_operator_wants_signing_keys_for_users() -> None:
    made = Made(strict_signing_key_usage=True)
    signing_key = A.signing_key.public
    made.resolver.jwts[A.name] = OPERATOR.account(
        "A", by=OPERATOR.signing_key, signing_keys=[signing_key]
    ).jwt
    assert list((await made.accounts.require(A.name)).signers) == [signing_key]
    made.resolver.jwts[B.name] = B.jwt  # the operator's own key signed it
    with pytest.raises(AccountUnavailable, match="account validation failed"):
        await made.accounts.require(B.name)


async def test_exporters_are_looked_up_with_their_importers() -> None:
    """Two accounts that import from each other, and from one that is missing."""
    made = Made()
    missing = OPERATOR.account("C").name
    for name, others in (("A", (B.name, missing)), ("B", (A.name,))):
        imports = [{"subject": "x", "type": "stream", "account": other} for other in others]
        account = OPERATOR.account(name, imports=imports)
        made.resolver.jwts[account.name] = account.jwt
    await made.accounts.require(A.name)
    assert {account.name for _, account in made.listener.changed} == {A.name, B.name}
    assert sorted(made.resolver.asked) == sorted([A.name, B.name, missing])


async def test_an_account_expires_and_may_be_renewed() -> None:
    made = Made()
    made.resolver.jwts[A.name] = OPERATOR.account("A", exp=int(NOW_S) + 1).jwt
    await made.accounts.require(A.name)
    made.now_s += 2
    assert made.accounts.get(A.name) is None
    await eventually_within(lambda: made.listener.ended)
    assert made.listener.ended == [(A.name, AccountEnd.EXPIRED)]
    made.resolver.jwts[A.name] = A.jwt
    assert (await made.accounts.require(A.name)).jwt == A.jwt
    await made.accounts.close()


async def test_updates_of_known_accounts() -> None:
    made = Made()
    assert await made.accounts.update(A.name, A.jwt) is False
    made.resolver.jwts[A.name] = A.jwt
    first = await made.accounts.require(A.name)
    changed = OPERATOR.account("A", limits={"conn": 1}).jwt
    assert await made.accounts.update(A.name, changed) is True
    second = made.accounts.get(A.name)
    assert made.listener.changed[-1] == (first, second)
    assert await made.accounts.update(A.name, changed) is True
    assert len(made.listener.changed) == 2
    assert await made.accounts.update(A.name, B.jwt) == "account validation failed"
    assert made.accounts.get(A.name) is second


async def test_a_deleted_account_ends() -> None:
    made = Made()
    made.resolver.jwts[A.name] = A.jwt
    await made.accounts.require(A.name)
    made.accounts.deleted(A.name)
    made.accounts.deleted(A.name)
    assert made.listener.ended == [(A.name, AccountEnd.DELETED)]
    assert A.name not in made.accounts


def activation(*, by: Any = A.key, to: str = B.name, kind: str = "stream", **more: Any) -> str:
    body = {"subject": "a.*", "kind": kind}
    if by is A.signing_key:
        body["issuer_account"] = A.name
    return token("activation", to, by, body, **more)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (activation(), 0),
        (activation(exp=ISSUED_AT + 500), (ISSUED_AT + 500) * 10**9),
        (activation(by=A.signing_key), 0),
        (activation(exp=ISSUED_AT), None),
        (activation(to=A.name), None),
        (activation(kind="service"), None),
        (activation(by=B.key), None),
        (activation(by=key(Kind.ACCOUNT, "other")), None),
        (A.jwt, None),
        ("", None),
    ],
)
async def test_activations(given: str, expected: int | None) -> None:
    made = Made()
    made.resolver.jwts[A.name] = OPERATOR.account("A", signing_keys=[A.signing_key.public]).jwt
    exporter = await made.accounts.require(A.name)
    args = (exporter, B.name, "a.b", "stream")
    assert check_activation(given, *args, {}, NOW_S) == expected
    assert check_activation(given, *args, {B.name: ISSUED_AT}, NOW_S) is None
    assert check_activation(given, exporter, B.name, "b", "stream", {}, NOW_S) is None
