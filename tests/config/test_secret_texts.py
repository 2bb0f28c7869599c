"""No error, report or comparison of configurations shows a secret, whatever its setting holds."""

import contextlib
import io
from pathlib import Path

import pytest

from natsd.cli.config import main
from natsd.config.load import load_options
from natsd.config.secret_texts import without_secrets
from natsd.config.settings import OptionsError

SECRET = "s3cr3t"
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
PUBLIC = "AAB35RZ7HJSICG7FCXHWUVSNFTYSXRSX6UHBSL7RXQMXBH5GQYLYUHXV"

SECRETS = [
    "authorization { user: a, password: %s }",
    "authorization { user: a, PASS: %s }",
    "authorization { token: %s }",
    "authorization { users: [{user: a, password: %s}] }",
    "accounts { A { users: [{user: a, pass: %s}] } }",
    "default_sentinel: %s",
    "jetstream { key: %s }",
    "jetstream { prev_ek: %s }",
    "jetstream { tpm { keys_file: x, srk_password: %s } }",
    "cluster { authorization { user: a, password: %s } }",
    "gateway { authorization { user: a, password: %s } }",
    "leafnodes { authorization { user: a, password: %s } }",
    'leafnodes { remotes: [{url: "nats://h:1", proxy: {password: %s}}] }',
    "websocket { authorization { token: %s } }",
    "mqtt { authorization { password: %s } }",
]
VALUES = [
    *('"s3cr3t"', "s3cr3t", "'s3cr3t'", "12s3cr3t", "-s3cr3t", "$2a$11$s3cr3t", "1.2.s3cr3t"),
    *('{a: "s3cr3t"}', '["s3cr3t"]', "[[{pass: s3cr3t}]]", "{a: {b: [s3cr3t]}}", "[{a: s3cr3t}]"),
    *(
        "$s3cr3t",
        "${s3cr3t}",
        "[$s3cr3t]",
        "{a: $s3cr3t}",
        "{a: {b: $s3cr3t}}",
        "{a: b, c: $s3cr3t}",
    ),
    *(
        '"s3cr3t',
        "'s3cr3t",
        "(s3cr3t",
        "[s3cr3t",
        "{a: s3cr3t",
        '"s3cr3t"x',
        "s3cr3t]",
        "2024-s3cr3t",
    ),
    *(r'"\xs3cr3t"', r'"s3cr3t\q"', "99999999999999999999ms3cr3t", "nats://u:s3cr3t@h:1"),
]
NOT_SECRET = [  # settings that a secret is put into by mistake, and what of it looks like a secret
    ("authorization { user: %s, password: x }", '{password: "s3cr3t"}'),
    ("authorization { timeout: %s }", '{password: "s3cr3t"}'),
    ("authorization { users: %s }", '{password: "s3cr3t"}'),
    ("authorization { users: [{nkey: %s}] }", SEED),
    ("authorization: %s", "[{token: s3cr3t}]"),
    ("authorization { auth_callout { auth_users: [a], issuer: %s } }", SEED),
    (f"authorization {{ auth_callout {{ auth_users: [a], issuer: {PUBLIC}, xkey: %s }} }}", SEED),
    ("accounts: %s", "[{password: s3cr3t}]"),
    ("accounts { A { nkey: %s } }", SEED),
    ("accounts { A { jetstream: %s } }", "[{key: s3cr3t}]"),
    ("jetstream: %s", "[{key: s3cr3t}]"),
    ("jetstream { enabled: %s }", "{key: s3cr3t}"),
    ("port: %s", "{password: s3cr3t}"),
    ("listen: %s", "[{password: s3cr3t}]"),
    ("proxies { trusted: [{key: %s}] }", SEED),
    ("proxies { trusted: [%s] }", "{key: [s3cr3t]}"),
    ("trusted_keys: [%s]", SEED),
    ("operator: %s", SEED),
    ("tls { cert_file: x, key_file: %s }", "(\n-----BEGIN PRIVATE KEY-----\ns3cr3t\n)"),
    ("tls { cert_file: x, key_file: %s }", "{password: s3cr3t}"),
    ("resolver: %s", 'URL("http://u:s3cr3t@h")'),
    ("resolver: {type: url, url: %s}", '"http://u:s3cr3t@h"'),
    ("resolver: {type: url, url: %s}", '"//u:s3cr3t@h"'),
    ("cluster { routes: [%s] }", '"nats://u:s3cr3t@h"'),
    ("gateway { gateways: [{name: a, url: %s}] }", '"nats://u:s3cr3t@h"'),
]


def everything_shown(path: Path) -> str:
    """Return all that errors, the check and the comparison with an empty file show."""
    empty = path.with_name("empty.conf")
    empty.write_text("")
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        main(["check", str(path)])
        main(["diff", str(empty), str(path)])
        main(["diff", str(path), str(empty)])
    try:
        load_options(path)
    except OptionsError as error:
        shown.writelines(repr(each) for each in error.every)
    return shown.getvalue()


@pytest.mark.parametrize("setting", SECRETS)
def test_a_secret_of_any_type_is_not_shown(setting: str, tmp_path: Path) -> None:
    path = tmp_path / "natsd.conf"
    for value in VALUES:
        path.write_text(setting % value)
        shown = everything_shown(path)
        assert shown, value
        assert SECRET not in shown, value


@pytest.mark.parametrize(("setting", "value"), NOT_SECRET)
def test_a_secret_in_the_wrong_place_is_not_shown(setting: str, value: str, tmp_path: Path) -> None:
    path = tmp_path / "natsd.conf"
    path.write_text(setting % value)
    shown = everything_shown(path)
    assert shown
    assert SECRET not in shown
    assert SEED not in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("max_payload must be a whole number", "max_payload must be a whole number"),
        (f'got "{SEED}"', 'got "[REDACTED]"'),
        (f'got "{PUBLIC}"', f'got "{PUBLIC}"'),
        ("nats://a:b@h:1,nats://h:2", "nats://[REDACTED]@h:1,nats://h:2"),
        ("open -----BEGIN EC PRIVATE KEY-----\nMHc\n: too long", "open [REDACTED]"),
    ],
)
def test_what_looks_like_a_secret(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
