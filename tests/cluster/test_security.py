"""TLS, logins and permissions of routes."""

from pathlib import Path
from typing import Any

import pytest

from natsd.cluster.certificates import names_host_of
from natsd.testing.certificates import Authority
from tests.clients.secure import Trust
from tests.cluster.mesh import (
    client,
    cluster_of,
    inbox,
    interested,
    member,
    mesh,
    meshed,
    route_url,
    routes_of,
)
from tests.waiting import Eventually


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return Trust(tmp_path_factory.mktemp("trust"))


@pytest.mark.both_loops
@pytest.mark.parametrize("compression", ["off", "s2_auto"])
async def test_routes_are_encrypted_and_may_be_compressed(trust: Trust, compression: str) -> None:
    block = {"tls": trust.verifying, "compression": compression}
    async with mesh(2, block) as servers, client(servers[0]) as a, client(servers[1]) as b:
        for route in (each for server in servers for each in routes_of(server)):
            assert route.tls_state is not None
            assert route.tls_state.certificates
        got = await inbox(b, "foo")
        await interested(servers[0], "foo")
        texts = [str(number) * 30_000 for number in range(10)]
        for text in texts:
            await a.publish("foo", text.encode())
        await a.flush()
        await got.filled(len(texts))
        assert got.texts == texts


async def test_a_peer_needs_a_certificate_of_our_authority(
    trust: Trust, tmp_path: Path, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    other = Authority(tmp_path)
    theirs = {**other.sign("server").settings, "ca_file": str(trust.authority.ca_file)}
    async with member("A", cluster={"tls": trust.verifying}) as first:
        async with member("B", [first], {"tls": theirs}):
            await eventually(lambda: "TLS route handshake error" in caplog.text)
            assert not routes_of(first)


async def test_a_peer_without_tls_is_refused(
    trust: Trust, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    async with member("A", cluster={"tls": trust.verifying}) as first, member("B", [first]):
        await eventually(lambda: "does not look like a TLS handshake" in caplog.text)
        assert not routes_of(first)


async def test_certificates_may_be_pinned(trust: Trust, eventually: Eventually) -> None:
    wrong = {**trust.verifying, "pinned_certs": ["0" * 64]}
    async with mesh(2, {"tls": trust.verifying}) as (first, second):
        first.reload(cluster={**_block(first), "tls": wrong})
        await eventually(lambda: not routes_of(first))
        await eventually(lambda: not routes_of(second))
        first.reload(cluster={**_block(first), "tls": trust.verifying})
        await meshed(first, second)


def _block(server: Any) -> dict[str, Any]:
    options = cluster_of(server).options
    return {"name": options.name, "host": options.host, "port": options.port}


async def test_a_certificate_may_be_the_login(trust: Trust, eventually: Eventually) -> None:
    """The certificate of `Trust` is for localhost, which is the host of the route."""
    tls = {**trust.verifying, "verify_cert_and_check_known_urls": True}
    async with member("A", cluster={"tls": tls}) as first:
        async with member("B", [first], {"tls": trust.verifying}):
            await eventually(lambda: not routes_of(first))
        url = route_url(first).replace("127.0.0.1", "localhost")
        first.reload(cluster={**_block(first), "tls": tls, "routes": ["nats://localhost:1"]})
        async with member("D", cluster={"routes": [url], "tls": trust.verifying}) as third:
            await eventually(lambda: len(routes_of(third)) == 4)


def test_a_name_may_begin_with_a_wildcard(trust: Trust) -> None:
    pair = trust.authority.sign("server", names=("*.example.com", "b.org"))
    certificate = pair.der
    assert names_host_of(certificate, ["a.EXAMPLE.com"])
    assert names_host_of(certificate, ["x", "b.org"])
    assert not names_host_of(certificate, ["a.b.example.com", "example.com", "c.org"])


@pytest.mark.both_loops
async def test_only_what_is_permitted_passes() -> None:
    rules = {"import": {"allow": ["in.>", "both"]}, "export": {"allow": ["out.>", "both"]}}
    first = member("A", cluster={"permissions": rules})
    async with first, member("B", [first]) as second:
        await meshed(first, second)
        async with client(first) as a, client(second) as b:
            near = await inbox(a, ">")
            far = {subject: await inbox(b, subject) for subject in ("out.x", "in.x", "both")}
            for subject in ("in.x", "both", "neither"):
                await inbox(a, subject)
            await interested(first, "out.x", 2)
            await interested(second, "both", 2)
            await interested(first, "in.x", 2)
            for subject in ("out.x", "in.x", "both", "neither"):
                await a.publish(subject, subject.encode())
                await b.publish(subject, subject.encode())
            await a.flush()
            await b.flush()
            await far["out.x"].filled(2)
            await far["both"].filled(2)
            await a.flush()
            assert len(far["in.x"]) == 1
            assert sorted(near.texts) == ["both", "both", "in.x", "in.x", "neither", "out.x"]


async def test_a_password_in_the_url_logs_in(eventually: Eventually) -> None:
    login = {"user": "u", "password": "p@:"}
    async with member("A", cluster={"authorization": login}) as first:
        url = route_url(first).replace("//", "//u:p%40%3A@")
        block = {"authorization": login, "routes": [url]}
        async with member("B", cluster=block) as second, member("D", cluster=block) as third:
            await meshed(first, second, third)
