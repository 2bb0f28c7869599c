"""A file that `natsd -t` accepts is one that a server starts with; mistakes have their place."""

from pathlib import Path

import pytest

from natsd.config import OptionsError
from natsd.config.load import error_lines
from natsd.server.start_checks import load_checked
from natsd.testing.jwts import Operator

OPERATOR = Operator()
ACCOUNT = OPERATOR.account("A")
TRUSTED = f"operator: {OPERATOR.jwt()}\nresolver: MEMORY\n"

MISTAKES = {
    "cluster { listen: 6222, name: c }\njetstream: on": [
        "jetstream cluster requires `server_name` to be set"
    ],
    "server_name: a\ncluster { listen: 6222 }\njetstream: on": [
        "x.conf:2:1: jetstream cluster requires `cluster.name` to be set"
    ],
    """accounts {
      A { imports: [{stream: {account: B, subject: x}}], exports: [{stream: x}] }
      B { exports: [{stream: x}]
          imports: [
            {stream: {account: A, subject: x}} ] } }""": [
        'x.conf:5:13: Error adding stream import "x": import forms a cycle'
    ],
    """accounts {
      A { imports: [{service: {account: B, subject: x}}], exports: [{service: x}] }
      B { imports: [{service: {account: A, subject: x}}], exports: [{service: x}] } }""": [
        'x.conf:3:21: Error adding service import "x": import forms a cycle'
    ],
    """accounts {
      A { exports: [{stream: x, accounts: [C]}] }, C {}
      B { imports: [{stream: {account: A, subject: x}},
                    {stream: {account: A, subject: y}},
                    {service: {account: A, subject: x}}] } }""": [
        'x.conf:3:21: Error adding stream import "x": stream import not authorized',
        'x.conf:4:21: Error adding stream import "y": stream import not authorized',
        'x.conf:5:21: Error adding service import "x": service import not authorized',
    ],
    """accounts { A { imports: [
        {stream: {account: X, subject: x}}
        {service: {account: Y, subject: x}}] } }""": [
        'x.conf:2:9: "X" account not defined for stream import',
        'x.conf:3:9: "Y" account not defined for service import',
    ],
    """accounts { A { exports: [
        {stream: x, accounts: [X]}
        {service: x, accounts: [Y]}
        {stream: "a.*", account_token_position: 3}] } }""": [
        'x.conf:2:9: "X" account not defined for stream export',
        'x.conf:3:9: "Y" account not defined for service export',
        'x.conf:4:9: Error adding stream export "a.*": invalid subject',
    ],
    """accounts { A { maps {
        "a.*": "b.$2" } } }
       mappings {
        x: "y.$1" }""": [
        'x.conf:2:10: Error adding mapping for "a.*" : invalid mapping destination: wildcard',
        'x.conf:4:9: Error adding mapping for "x" : invalid mapping destination: wildcard',
    ],
    """no_sys_acc: true
       accounts { A { exports: [
         {service: x, latency: l}] } }""": [
        'x.conf:3:10: Error adding service latency sampling for "x": system account not setup'
    ],
    "port: 1\ntls { verify: true }": ["x.conf:2:1: tls: TLS needs a certificate: set"],
    "port: 1\nclient_advertise: 'a:b'": [
        "x.conf:2:1: client_advertise must be host or host:port, not 'a:b'"
    ],
    "client_advertise: '::1'": ["x.conf:1:1: client_advertise must be host or host:port"],
    "accounts { A {} }\nsystem_account: B": [
        "x.conf:2:1: error resolving system account: account missing"
    ],
    "jetstream: on\naccounts { $SYS {\n jetstream: on } }": [
        "x.conf:3:2: Not allowed to enable JetStream on the system account"
    ],
    "jetstream { max_mem: 1M }\naccounts { A { jetstream { max_mem: 2M } } }": [
        "x.conf:2:1: accounts: insufficient memory resources available"
    ],
    "leafnodes { authorization { account: A\n users: [{user: a, account: B}] } }": [
        'x.conf:1:29: cannot find local account "A" specified in leafnode authorization',
        'x.conf:2:10: cannot find local account "B" specified in leafnode authorization',
    ],
    "resolver: { type: full, dir: x }": ["x.conf:1:1: resolver: no operator key found"],
    f"operators: [{ACCOUNT.jwt}]": ["x.conf:1:13: operator: the JWT is not valid: not operator"],
    f"operator: {OPERATOR.jwt()}": ["x.conf:1:1: operators require an account resolver"],
    f"{TRUSTED}accounts [A]\nno_auth_user: a": [
        "x.conf:3:1: operators do not allow Accounts to be configured directly",
        "x.conf:4:1: no_auth_user not compatible with Trusted Operator",
    ],
    f"{TRUSTED}authorization {{\n users: [{{user: a}}] }}": [
        "x.conf:4:2: operators do not allow users to be configured directly"
    ],
    f"{TRUSTED}default_sentinel: x": ["x.conf:3:1: default sentinel JWT not valid"],
    f"{TRUSTED}resolver_pinned_accounts: [\n{OPERATOR.key.public}]": [
        "x.conf:4:1: pinned account key"
    ],
    f"{TRUSTED}resolver_preload {{\n {ACCOUNT.name}: {OPERATOR.jwt()} }}": [
        f'x.conf:4:2: preload account error for "{ACCOUNT.name}": not account claim'
    ],
    f"operator: {OPERATOR.jwt()}\nresolver: URL(http://127.0.0.1/)\n"
    f"resolver_preload {{ {ACCOUNT.name}: {ACCOUNT.jwt} }}": [
        "x.conf:3:1: resolver preloads only available for writeable resolver types"
    ],
}


@pytest.mark.parametrize("text", MISTAKES)
def test_what_a_start_refuses_is_refused_with_its_place(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.conf"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(OptionsError) as caught:
        load_checked(path)
    found = [line.removeprefix(f"{tmp_path}/") for line in error_lines(caught.value)]
    assert len(found) == len(MISTAKES[text])
    for line, beginning in zip(found, MISTAKES[text], strict=True):
        assert line.startswith(beginning)


def test_what_a_start_accepts_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "x.conf"
    for advertised in ("a", "a:5", "[::1]", "[::1]:5", ":5"):
        path.write_text(f"client_advertise: '{advertised}'\naccounts [A], system_account: A")
        assert load_checked(path).options.client_advertise == advertised
    path.write_text(f"{TRUSTED}resolver_preload {{ {ACCOUNT.name}: {ACCOUNT.jwt} }}")
    assert load_checked(path).options.operators
    path.write_text(
        """accounts {
          A { exports: [{stream: "x.>"}], mappings { a: b } }
          B { imports: [{stream: {account: A, subject: "x.y"}}] } }"""
    )
    assert load_checked(path).options.shares
