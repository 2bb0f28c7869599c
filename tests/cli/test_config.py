"""Configuration files on the command line: `-c`, `-t`, `natsd config check` and `diff`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from natsd.cli import main
from natsd.cli.redaction import redact
from tests.cli.daemon import Start, running_daemons
from tests.config.test_examples import write_certificates


@pytest.fixture
def start() -> Iterator[Start]:
    with running_daemons() as start_one:
        yield start_one


def write(directory: Path, text: str, name: str = "x.conf") -> str:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return str(path)


DIGEST = "sha256:5942f6739f1572892ba80b954eee212713f172258629e16936dfeeae8e2eb80d"


@pytest.mark.parametrize("name", ["natsd", "nats-server"])
def test_a_tested_file_is_valid(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "port: 4333")
    monkeypatch.setattr(sys, "argv", [f"/usr/bin/{name}"])
    assert main(["-t", "-c", path]) == 0
    shown = capsys.readouterr()
    assert shown.err == f"{name}: configuration file {path} is valid ({DIGEST})\n"
    assert not shown.out


def test_a_tested_file_with_mistakes_shows_all_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "prot: 1\nmax_payload: much\n")
    assert main(["-c", path, "-t"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"natsd: {path}:1:1: unknown field \"prot\"; did you mean 'port'?",
        f"{path}:2:1: max_payload must be a whole number, not 'much' "
        "(bytes in a message, headers included)",
    ]


def test_a_tested_file_with_warnings_is_not_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-t", "-c", write(tmp_path, "")]) == 1
    assert "config has no values or is empty" in capsys.readouterr().err


def test_nats_server_answers_an_unknown_flag_with_its_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["nats-server", "-foo"])
    assert main() == 0
    shown = capsys.readouterr()
    assert shown.err == "flag provided but not defined: -foo\n"
    assert shown.out.startswith("Usage: nats-server [options]")


def test_help_for_tls(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-help_tls"]) == 0
    assert "TLS_AES_128_GCM_SHA256" in capsys.readouterr().out


def test_a_start_with_a_file(start: Start, tmp_path: Path) -> None:
    path = write(tmp_path, "server_name: filed\nport: 1\nhost: nowhere\n")
    daemon = start("-c", path)
    daemon.read_until("Server is ready")
    assert daemon.end() == 0
    assert "INF   Name:     filed" in daemon.texts
    assert any(text.startswith(f"INF Using configuration file: {path} (") for text in daemon.texts)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_title_of_the_process_has_no_secrets(start: Start) -> None:
    daemon = start("-user", "visitor", "--pass=hush-hush-hush")
    daemon.read_until("Server is ready")
    title = Path(f"/proc/{daemon.process.pid}/cmdline").read_bytes()
    assert b"visitor" not in title
    assert b"hush" not in title
    assert b"[REDACTED]" in title
    assert daemon.end() == 0


REDACTED = {
    "-user a -pass b -p 1": "-user [REDACTED] -pass [REDACTED] -p 1",
    "--auth=a": "--auth=[REDACTED]",
    "-routes nats://u:p@a:1,nats://b:2": "-routes nats://[REDACTED]@a:1,nats://b:2",
    "-routes nats://u:p@q@a:1": "-routes nats://[REDACTED]@a:1",
    "--cluster=nats://u:p@a:-1": "--cluster=nats://[REDACTED]@a:-1",
    "-D -user": "-D -user",
}


@pytest.mark.parametrize("line", REDACTED)
def test_secrets_in_arguments_are_replaced(line: str) -> None:
    arguments = line.split()
    redact(arguments)
    assert " ".join(arguments) == REDACTED[line]


EXPLAINED = """
listen: "127.0.0.1:4333"
http: 8222
http_user: scraper
http_password: "hush-hush"
max_payload: 2KiB
tls { cert_file: "certs/server-cert.pem", key_file: "certs/server-key.pem", verify: true }
accounts {
  A { users: [{user: a, password: "hush-hush", permissions: {publish: "x.>"}}]
      exports: [{stream: "pub.>"}], jetstream: on }
  B { users: [{user: b, password: "hush-hush"}]
      imports: [{stream: {account: A, subject: "pub.>"}, prefix: a}]
      mappings: { m: n } }
}
no_auth_user: a
jetstream { store_dir: "/data", max_file: 10G, key: "hush-hush" }
port: 4334
"""


def test_check_explains_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_certificates(tmp_path / "certs")
    monkeypatch.chdir(tmp_path)
    assert main(["config", "check", write(tmp_path, EXPLAINED)]) == 0
    shown = capsys.readouterr().out
    for line in (
        "for clients on 127.0.0.1, port 4334",
        "TLS 1.2 or later, handshake after INFO",
        "certificate certs/server-cert.pem: CN=localhost, valid until 20",
        "clients must have a certificate",
        "for monitoring on http://127.0.0.1:8222",
        "for user scraper, with a password; /healthz for everybody",
        "user a, with a password, in account A: may publish x.>",
        "clients without credentials, as user a",
        "A: 1 user, JetStream on",
        "exports stream pub.> to all accounts",
        "imports stream pub.> of A as a",
        "maps m to n (100%)",
        "JetStream keeps its data in /data",
        "files: 10000000000 bytes",
        "files are encrypted (chachapoly)",
        "max_payload: 2048",
        "3 passwords or token in plain text",
        "the certificate certs/server-cert.pem expires in",
    ):
        assert line in shown
    assert "hush" not in shown


CLUSTERED = """
cluster {
  name: c1
  listen: "127.0.0.1:6222"
  routes: ["nats://route:hush-hush@n1:6222", "nats://n2:6222"]
  authorization { user: route, password: "hush-hush" }
  tls { cert_file: "certs/server-cert.pem", key_file: "certs/server-key.pem" }
}
"""


def test_check_explains_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_certificates(tmp_path / "certs")
    monkeypatch.chdir(tmp_path)
    assert main(["config", "check", write(tmp_path, CLUSTERED)]) == 0
    shown = capsys.readouterr().out
    for line in (
        "for other servers of cluster c1 on 127.0.0.1, port 6222",
        "connects to nats://[REDACTED]@n1:6222, nats://n2:6222",
        "TLS 1.2 or later, with certificates of both sides",
        "certificate certs/server-cert.pem: CN=localhost, valid until 20",
    ):
        assert line in shown
    assert "hush" not in shown
    assert "clients must have a certificate" not in shown


def test_check_warns_of_a_cluster_that_everybody_may_join(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "check", write(tmp_path, "cluster { port: -1 }")]) == 0
    shown = capsys.readouterr().out
    assert "of a cluster whose name the servers choose on 0.0.0.0, a random port" in shown
    assert "every server that reaches the port may join: there is neither a login nor TLS" in shown


def test_check_shows_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "prot: 1")
    assert main(["config", "check", path]) == 1
    assert capsys.readouterr().err == f"{path}:1:1: unknown field \"prot\"; did you mean 'port'?\n"


def test_diff_says_what_differs_and_what_needs_a_restart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users = "[{user: a, password: hush}, {user: b, password: hush}]"
    old = write(
        tmp_path, f"port: 1\nmax_payload: 1k\naccounts {{ A {{ users: {users} }}, B {{}} }}", "old"
    )
    users = "[{user: a, password: shush}, {user: c, password: hush}]"
    new = write(
        tmp_path, f"port: 2\nmax_payload: 2k\naccounts {{ A {{ users: {users} }}, C {{}} }}", "new"
    )
    assert main(["config", "diff", old, new]) == 0
    shown = capsys.readouterr().out
    lines = [line.partition("  (")[0] for line in shown.splitlines()]
    assert lines == [
        "port: 1 -> 2",
        "max_payload: 1000 -> 2000",
        "accounts.A.users.a.password: [REDACTED] -> [REDACTED]",
        "accounts.A.users.b: removed",
        "accounts.A.users.c: added",
        "accounts.B: removed",
        "accounts.C: added",
    ]
    assert "port: 1 -> 2  (needs a restart)" in shown
    assert "hush" not in shown


def test_diff_of_equal_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = write(tmp_path, "port: 1", "old"), write(tmp_path, "# c\nport 1", "new")
    assert main(["config", "diff", old, new]) == 0
    assert capsys.readouterr().out == "The two configurations are the same.\n"
