"""The examples in conf/: each loads, and says what its comments say."""

from pathlib import Path

import pytest
from cryptography import x509

from natsd.config.account_options import AccountOptions
from natsd.config.load import load_options
from natsd.testing.certificates import Authority
from tests.source.reading import ROOT

CONF = ROOT / "conf"
EXAMPLES = sorted(path.name for path in CONF.glob("*.conf"))


def test_what_there_is() -> None:
    assert {
        *("simple.conf", "tls.conf", "users.conf", "accounts.conf"),
        *("jetstream.conf", "operator.conf", "compose.conf"),
    } == set(EXAMPLES)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory in which `./certs` has what conf/tls.conf names."""
    directory = tmp_path_factory.mktemp("tls")
    write_certificates(directory / "certs")
    return directory


def write_certificates(directory: Path) -> None:
    """Write what conf/tls.conf names, valid for a week."""
    directory.mkdir()
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    pair = Authority(directory, "ca").sign("localhost", subject=subject, days=7)
    pair.cert_file.rename(directory / "server-cert.pem")
    pair.key_file.rename(directory / "server-key.pem")


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_loads(name: str, certificates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(certificates)
    loaded = load_options(CONF / name, {}, {})
    assert not loaded.warnings
    assert not loaded.notes


def test_the_accounts_share_what_the_comments_say() -> None:
    accounts = load_options(CONF / "accounts.conf", {}, {}).options.accounts
    assert list(accounts) == ["ORDERS", "SHOP", "SYS"]
    assert isinstance(accounts["SHOP"], AccountOptions)
    assert [each.account for each in accounts["SHOP"].imports] == ["ORDERS", "ORDERS"]


def test_the_hash_is_of_the_password_that_the_comment_names() -> None:
    bcrypt = pytest.importorskip("bcrypt")
    users = load_options(CONF / "users.conf", {}, {}).options.authorization.users
    (dashboard,) = [user for user in users if user.user == "dashboard"]
    assert bcrypt.checkpw(b"dashboard", dashboard.password.encode())
