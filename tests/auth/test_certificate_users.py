"""The user that a client's certificate names: the candidates of nats-server, in its order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from natsd.auth.certificate_users import parse_distinguished_name, user_of_certificate
from natsd.testing.certificates import Authority

C, O, OU, CN, DC = (  # noqa: E741  as in a distinguished name
    NameOID.COUNTRY_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.COMMON_NAME,
    NameOID.DOMAIN_COMPONENT,
)

Attributes = list[tuple[x509.ObjectIdentifier, str]]
SUBJECT: Attributes = [(C, "US"), (O, "NATS"), (OU, "CNCF"), (CN, "derek")]


Certificates = Callable[..., bytes]


@pytest.fixture
def certificate(tmp_path: Path) -> Certificates:
    authority = Authority(tmp_path)

    def make(subject: Attributes, names: Sequence[x509.GeneralName] = ()) -> bytes:
        """Return a certificate with this subject and these alternative names."""
        name = x509.Name([x509.NameAttribute(kind, value) for kind, value in subject])
        return authority.sign("client", subject=name, names=names).der

    return make


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["d@nats.io", "host", "spiffe://x/y", "CN=derek,OU=CNCF,O=NATS,C=US"], "d@nats.io"),
        (["host", "spiffe://x/y", "CN=derek,OU=CNCF,O=NATS,C=US"], "host"),
        (["spiffe://x/y", "CN=derek,OU=CNCF,O=NATS,C=US"], "spiffe://x/y"),
        (["CN=derek,OU=CNCF,O=NATS,C=US"], "CN=derek,OU=CNCF,O=NATS,C=US"),
        (["derek", "nobody"], None),
        ([], None),
    ],
)
def test_alternative_names_come_before_the_subject(
    certificate: Certificates, names: list[str], found: str | None
) -> None:
    email, uri = x509.RFC822Name("d@nats.io"), x509.UniformResourceIdentifier("spiffe://x/y")
    der = certificate(SUBJECT, [email, x509.DNSName("host"), uri])
    assert user_of_certificate(der, names).name == found


@pytest.mark.parametrize(
    "name",
    [
        "CN=derek,OU=CNCF,O=NATS,C=US",
        "CN=derek, OU=CNCF, O=NATS, C=US",
        "cn=derek,ou=CNCF,o=NATS,c=US",
        "C=US,O=NATS,OU=CNCF,CN=derek",
        "O=NATS,CN=derek,C=US,OU=CNCF",
        r"CN=\64erek,OU=CNCF,O=NATS,C=US",
    ],
)
def test_a_subject_in_any_spelling_and_order(certificate: Certificates, name: str) -> None:
    found = user_of_certificate(certificate(SUBJECT), ["CN=other", "no name", name])
    assert found.name == name


@pytest.mark.parametrize(
    "name",
    [
        "CN=Derek,OU=CNCF,O=NATS,C=US",
        "CN=derek,OU=CNCF,O=NATS",
        "CN=derek,OU=CNCF,O=NATS,C=US,C=US",
        "CN=derek+OU=CNCF,O=NATS,C=US",
        "CN=derek",
    ],
)
def test_another_subject(certificate: Certificates, name: str) -> None:
    assert user_of_certificate(certificate(SUBJECT), [name]).name is None


def test_the_same_order_comes_before_another(certificate: Certificates) -> None:
    names = ["C=US,O=NATS,OU=CNCF,CN=derek", "CN=derek,OU=CNCF,O=NATS,C=US"]
    assert user_of_certificate(certificate(SUBJECT), names).name == names[1]


def test_domain_components(certificate: Certificates) -> None:
    subject = [(DC, "com"), (DC, "example"), (O, "NATS"), (CN, "derek")]
    der = certificate(subject)
    for name in ("CN=derek,O=NATS,DC=example,DC=com", "CN=derek,O=NATS,DC=com,DC=example"):
        assert user_of_certificate(der, [name]).name == name
    assert user_of_certificate(der, ["CN=derek,O=NATS"]).name == "CN=derek,O=NATS"


def test_special_characters_are_escaped(certificate: Certificates) -> None:
    der = certificate([(O, "A, B + C"), (CN, " derek#")])
    name = r"CN=\ derek#,O=A\, B \+ C"
    assert user_of_certificate(der, [name]).name == name


def test_a_kind_without_a_short_name_leaves_the_text(certificate: Certificates) -> None:
    der = certificate([(NameOID.EMAIL_ADDRESS, "d@nats.io"), (CN, "derek")])
    assert user_of_certificate(der, ["CN=derek"]).name == "CN=derek"


def test_a_certificate_without_names(certificate: Certificates) -> None:
    found = user_of_certificate(certificate([]), [""])
    assert found.name is None
    assert found.steps == ("User required in cert, none found",)


@given(st.binary(max_size=200))
def test_garbage_names_nobody(data: bytes) -> None:
    assert user_of_certificate(data, ["CN=derek"]).name is None


@given(st.text("CN=derk,+\\ #;20", max_size=40))
def test_any_text_is_a_name_or_not(text: str) -> None:
    parsed = parse_distinguished_name(text)
    assert parsed is None or all(parsed)


@pytest.mark.parametrize("text", ["", "derek", "=x", "CN", "CN=a+", "CN=#0401", "CN=\\"])
def test_what_is_no_distinguished_name(text: str) -> None:
    assert parse_distinguished_name(text) is None
