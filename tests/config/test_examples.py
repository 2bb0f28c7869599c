"""The examples in conf/: each loads, and says what its comments say."""

import re
from pathlib import Path

import pytest
from cryptography import x509

from natsd.config.account_options import AccountOptions
from natsd.config.cluster_options import ClusterOptions
from natsd.config.load import load_options
from natsd.config.settings import settings_of
from natsd.testing.certificates import Authority
from tests.source.reading import ROOT

CONF = ROOT / "conf"
EXAMPLES = sorted(path.name for path in CONF.glob("*.conf"))


def test_what_there_is() -> None:
    assert {
        *("simple.conf", "tls.conf", "users.conf", "accounts.conf"),
        *("jetstream.conf", "operator.conf", "compose.conf"),
        *("cluster.conf", "cluster-seed.conf", "cluster-tls.conf", "cluster-accounts.conf"),
        "compose-cluster.conf",
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


CLUSTERS = sorted(path.name for path in CONF.glob("*cluster*.conf"))


@pytest.mark.parametrize("name", CLUSTERS)
def test_an_example_of_a_cluster_has_routes(
    name: str, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(certificates)
    cluster = load_options(CONF / name, {}, {}).options.cluster
    assert cluster is not None
    assert cluster.is_on
    assert len(cluster.routes) >= 2


def test_the_manual_of_the_cluster_has_every_setting() -> None:
    text = (CONF / "cluster.conf").read_text()
    missing = [name for name in settings_of(ClusterOptions) if f"{name}:" not in text]
    written_otherwise = {"host", "port", "tls", "authorization", "permissions"}
    assert set(missing) <= written_otherwise
    for name in ("listen:", "authorization {", "permissions {", "cluster-tls.conf"):
        assert name in text


def test_what_the_manual_of_the_cluster_has_in_comments_loads(tmp_path: Path) -> None:
    """Each setting in a comment is taken, and has its default where it says so."""
    text = (CONF / "cluster.conf").read_text()
    wanted = re.sub(r"^( *)# (?=(\w+(: | \{)|  \w+: |\}))", r"\1", text, flags=re.MULTILINE)
    file = tmp_path / "cluster.conf"
    file.write_text(wanted)
    options = load_options(file, {}, {}).options
    cluster, default = options.cluster, ClusterOptions()
    assert cluster is not None
    assert cluster.authorization.user == "route"
    assert cluster.permissions is not None
    assert cluster.permissions.publish.allow == ("orders.>",)
    assert cluster.permissions.subscribe.deny == ("prices.internal.>",)
    for name in ("connect_retries", "connect_backoff", "pool_size", "accounts", "compression"):
        assert getattr(cluster, name) == getattr(default, name)
    assert (cluster.no_advertise, cluster.write_timeout) == (False, "retry")
    assert (options.connect_error_reports, options.reconnect_error_reports) == (3600, 1)


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
