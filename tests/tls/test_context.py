"""Contexts from settings: what is accepted, and the one line for what is not."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import pytest

from natsd.config.settings import OptionsError
from natsd.config.tls_options import CIPHER_SUITES, INSECURE_CIPHER_SUITES, TlsOptions, read_tls
from natsd.testing.certificates import Authority, rsa_key
from natsd.tls import cipher_suites, curves
from natsd.tls.context import TlsContext
from natsd.tls.errors import TlsError


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def options(settings: object) -> TlsOptions:
    return read_tls(settings)


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> ssl.SSLObject:
    """Return the client's end after a handshake; raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
    assert not waiting
    return ends[0]


def client_context(authority: Authority) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.ca_file)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


# ---- errors


def refusal(settings: dict[str, object]) -> str:
    with pytest.raises(OptionsError) as caught:
        TlsContext(options(settings))
    return str(caught.value)


def test_a_missing_certificate(authority: Authority, tmp_path: Path) -> None:
    pair = authority.sign("server")
    missing = tmp_path / "no.crt"
    assert refusal({"cert_file": str(missing), "key_file": str(pair.key_file)}) == (
        f"error parsing X509 certificate/key pair: open {missing}: no such file or directory"
    )


def test_a_missing_key(authority: Authority, tmp_path: Path) -> None:
    pair = authority.sign("server")
    missing = tmp_path / "no.key"
    assert refusal({"cert_file": str(pair.cert_file), "key_file": str(missing)}) == (
        f"error parsing X509 certificate/key pair: open {missing}: no such file or directory"
    )


def test_a_key_of_another_certificate(authority: Authority) -> None:
    one, other = authority.sign("one"), authority.sign("other")
    assert refusal({"cert_file": str(one.cert_file), "key_file": str(other.key_file)}) == (
        "error parsing X509 certificate/key pair: tls: private key does not match public key"
    )


def test_a_key_of_another_type(authority: Authority) -> None:
    one, other = authority.sign("one"), authority.sign("other", key=rsa_key())
    assert refusal({"cert_file": str(one.cert_file), "key_file": str(other.key_file)}).startswith(
        "error parsing X509 certificate/key pair: tls: private key "
    )


def test_files_that_are_no_certificate_and_no_key(authority: Authority, tmp_path: Path) -> None:
    pair, junk = authority.sign("server"), tmp_path / "junk.pem"
    junk.write_text("hello")
    assert refusal({**pair.settings, "cert_file": str(junk)}).endswith(
        f"tls: failed to find any PEM data in certificate input: {junk}"
    )
    assert refusal({**pair.settings, "key_file": str(junk)}).endswith(
        f"tls: failed to find any PEM data in key input: {junk}"
    )


def test_an_encrypted_key(authority: Authority) -> None:
    pair = authority.sign("server", password=b"secret")
    assert "the private key is encrypted, which is not supported" in refusal({**pair.settings})


def test_a_missing_and_a_bad_authority(authority: Authority, tmp_path: Path) -> None:
    pair, junk = authority.sign("server"), tmp_path / "junk.pem"
    missing = tmp_path / "no.pem"
    assert refusal({**pair.settings, "ca_file": str(missing)}) == (
        f"open {missing}: no such file or directory"
    )
    junk.write_text("hello")
    assert refusal({**pair.settings, "ca_file": str(junk)}) == (
        f"failed to parse root ca certificate: {junk}"
    )


def test_no_certificate_at_all() -> None:
    assert refusal({}).startswith("TLS needs a certificate")


def test_the_bad_one_of_several_certificates_is_named(authority: Authority) -> None:
    one, other = authority.sign("one"), authority.sign("other")
    bad = {"cert_file": str(one.cert_file), "key_file": str(other.key_file)}
    assert refusal({"certs": [one.settings, bad]}).startswith(
        "error parsing X509 certificate/key pair 2/2: "
    )


@pytest.mark.parametrize(
    ("from_days", "days", "text"),
    [(-9, -1, "has expired at"), (3, 9, "is valid from"), (-1, 5, "expires in 4 days")],
)
def test_a_certificate_that_is_not_valid_for_long_is_logged(
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
    from_days: int,
    days: int,
    text: str,
) -> None:
    pair = authority.sign("server", from_days=from_days, days=days)
    with caplog.at_level(logging.WARNING):
        TlsContext(options(pair.settings))
    assert [text in record.getMessage() for record in caplog.records] == [True]


def test_a_reload_that_fails_changes_nothing(authority: Authority) -> None:
    pair = authority.sign("server")
    tls = TlsContext(options(pair.settings))
    before = tls.context
    pair.key_file.write_text("hello")
    with pytest.raises(TlsError):
        tls.reload(tls.options)
    assert tls.context is before


# ---- what is negotiated


def test_the_certificate_for_the_servers_name_is_chosen(authority: Authority) -> None:
    one = authority.sign("one", names=("one.example", "shared.example"))
    two = authority.sign("two", names=("*.two.example", "shared.example"))
    tls = TlsContext(options({"certs": [one.settings, two.settings]}))
    client = client_context(authority)
    for name, pair in [
        ("one.example", one),
        ("ONE.example", one),
        ("a.two.example", two),
        ("shared.example", one),
    ]:
        end = shake_hands(tls.context, client, name)
        assert end.getpeercert(binary_form=True) == pair.der
    client.check_hostname = False
    assert shake_hands(tls.context, client, "else").getpeercert(binary_form=True) == one.der
    with pytest.raises(ssl.SSLCertVerificationError):  # `*` stands for one label
        shake_hands(tls.context, client_context(authority), "a.b.two.example")


def test_the_certificate_that_the_clients_keys_allow_is_chosen(authority: Authority) -> None:
    elliptic = authority.sign("elliptic")
    plain = authority.sign("plain", key=rsa_key())
    tls = TlsContext(options({"certs": [elliptic.settings, plain.settings]}))
    client = client_context(authority)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    for suites, pair in [("ECDHE+aRSA", plain), ("ECDHE+aECDSA", elliptic)]:
        client.set_ciphers(suites)
        end = shake_hands(tls.context, client, "localhost")
        assert end.getpeercert(binary_form=True) == pair.der


def test_the_lowest_version(authority: Authority) -> None:
    settings = authority.sign("server").settings
    client = client_context(authority)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    end = shake_hands(TlsContext(options(settings)).context, client, "localhost")
    assert end.version() == "TLSv1.2"
    with pytest.raises(ssl.SSLError):
        shake_hands(
            TlsContext(options({**settings, "min_version": "1.3"})).context, client, "localhost"
        )


def test_only_the_configured_cipher_suites(authority: Authority) -> None:
    name = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    settings = {**authority.sign("server").settings, "cipher_suites": [name]}
    client = client_context(authority)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    tls = TlsContext(options(settings))
    end = shake_hands(tls.context, client, "localhost")
    cipher = end.cipher()
    assert cipher is not None
    assert cipher_suites.standard_name(cipher[0]) == name
    client.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    with pytest.raises(ssl.SSLError):
        shake_hands(tls.context, client, "localhost")


def test_only_suites_of_the_newest_version_mean_that_version(authority: Authority) -> None:
    settings = {
        **authority.sign("server").settings,
        "cipher_suites": ["TLS_AES_128_GCM_SHA256"],
    }
    context = TlsContext(options(settings)).context
    assert context.minimum_version == ssl.TLSVersion.TLSv1_3


def test_every_configurable_suite_has_a_name_in_openssl() -> None:
    assert set(CIPHER_SUITES) == {*cipher_suites.SECURE, *cipher_suites.TLS13}
    assert set(INSECURE_CIPHER_SUITES) == set(cipher_suites.INSECURE)


def test_an_insecure_suite_is_enabled_if_openssl_has_it(authority: Authority) -> None:
    settings = authority.sign("server", key=rsa_key()).settings
    insecure = {"cipher_suites": ["TLS_RSA_WITH_AES_128_CBC_SHA"]}
    assert "insecure cipher suites configured" in refusal({**settings, **insecure})
    allowed = {"allow_insecure_cipher_suites": True}
    tls = TlsContext(options({**settings, **insecure, **allowed}))
    assert "AES128-SHA" in {each["name"] for each in tls.context.get_ciphers()}


def test_a_suite_that_openssl_was_built_without_is_refused() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with pytest.raises(TlsError, match="TLS_RSA_WITH_RC4_128_SHA is not in this OpenSSL"):
        cipher_suites.apply(context, ["TLS_RSA_WITH_RC4_128_SHA"])


@pytest.mark.parametrize(
    ("offered", "accepted", "fits"),
    [
        ("prime256v1", ["CurveP256"], True),
        ("prime256v1", ["X25519"], False),
        ("X25519", ["X25519"], True),
        ("prime256v1", ["X25519", "CurveP256"], True),
        ("secp384r1", ["X25519", "CurveP256"], False),
        ("secp521r1", ["CurveP384", "CurveP521"], True),
    ],
)
def test_only_the_configured_curves(
    authority: Authority, offered: str, accepted: list[str], fits: bool
) -> None:
    settings = {**authority.sign("server").settings, "curve_preferences": accepted}
    tls = TlsContext(options(settings))
    client = client_context(authority)
    client.set_ecdh_curve(offered)
    if fits:
        shake_hands(tls.context, client, "localhost")
    else:
        with pytest.raises(ssl.SSLError):
            shake_hands(tls.context, client, "localhost")


@pytest.mark.skipif(ssl.OPENSSL_VERSION_INFO[:2] >= (3, 5), reason="this OpenSSL has it")
def test_a_curve_that_openssl_lacks_is_refused() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with pytest.raises(TlsError, match="X25519MLKEM768 needs OpenSSL"):
        curves.apply(context, ["X25519MLKEM768", "X25519"])


def test_unknown_names_are_refused() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with pytest.raises(TlsError, match="unrecognized cipher foo"):
        cipher_suites.apply(context, ["foo"])
    with pytest.raises(TlsError, match="unrecognized curve preference foo"):
        curves.apply(context, ["foo"])
