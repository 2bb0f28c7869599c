"""Options from files: precedence, every kind of mistake with its place, and what is refused."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from natsd.config import Options, OptionsError
from natsd.config.load import error_lines, load_options
from natsd.config.loaded import LoadedConfig
from natsd.config.sharing_options import ServiceExport, ServiceImport, StreamExport, StreamImport
from tests.config.keys import JWT, public_key


def load(directory: Path, text: str, **flags: Any) -> LoadedConfig:
    path = directory / "x.conf"
    path.write_text(text, encoding="utf-8")
    return load_options(path, flags, {})


def mistakes(directory: Path, text: str, **flags: Any) -> list[str]:
    with pytest.raises(OptionsError) as caught:
        load(directory, text, **flags)
    return [line.removeprefix(f"{directory}/") for line in error_lines(caught.value)]


SETTINGS: dict[str, dict[str, Any]] = {
    "listen: 'localhost:4333'": {"host": "localhost", "port": 4333},
    "listen: 4333": {"host": "0.0.0.0", "port": 4333},
    "listen: '[::1]:-1'": {"host": "::1", "port": -1},
    "net: a": {"host": "a"},
    "http: 'b:8222'": {"http_host": "b", "http_port": 8222},
    "monitor_port: 8222": {"http_port": 8222},
    "logfile: /l, log_max_num: 3, logfile_size_limit: 1k": {
        "log_file": Path("/l"),
        "logfile_max_num": 3,
        "log_size_limit": 1000,
    },
    "PidFile: /p": {"pid_file": Path("/p")},
    "max_conn: 5, max_subs: 6, max_subscription_tokens: 7": {
        "max_connections": 5,
        "max_subscriptions": 6,
        "max_sub_tokens": 7,
    },
    "max_payload: 1KiB": {"max_payload": 1024},
    "ping_interval: '5s', write_deadline: 3": {
        "ping_interval": timedelta(seconds=5),
        "write_deadline": timedelta(seconds=3),
    },
    "trace_verbose: on": {"trace_verbose": True, "trace": True},
    "server_tags: [a, b]": {"server_tags": ("a", "b")},
    "server_metadata { a: b }": {"server_metadata": {"a": "b"}},
    "storedir: /s": {"store_dir": Path("/s")},
    "system: X, no_auth_user: ''": {"system_account": "X"},
    f"operator: {JWT}": {"operators": (JWT,)},
    f"trusted: [{public_key('O')}]": {"trusted_keys": (public_key("O"),)},
    "cluster { name: c }": {"no_header_support": False},
    "anything: 1, port: $anything": {"port": 1},
    "ocsp_cache: false": {"port": 4222},
    "max_subs: -1, max_traced_msg_len: -1": {"max_subscriptions": -1, "max_traced_msg_len": -1},
    "ocsp_cache { type: none, preserve_revoked: true, save_interval: 1 }": {"port": 4222},
    "tls { cert_match: x, ca_certs_match: [a] }": {"port": 4222},
    "tls { ocsp_peer { verify: false, ca_timeout: 1 } }": {"port": 4222},
}


@pytest.mark.parametrize("text", SETTINGS)
def test_a_setting_and_its_other_names(text: str, tmp_path: Path) -> None:
    options = load(tmp_path, text).options
    assert {name: getattr(options, name) for name in SETTINGS[text]} == SETTINGS[text]


MISTAKES = {
    "prot: 1": ["x.conf:1:1: unknown field \"prot\"; did you mean 'port'?"],
    "port: 1\n\n  debug: perhaps": ["x.conf:3:3: debug must be true or false, not 'perhaps' (log"],
    "listen: 'a'": ['x.conf:1:1: could not parse address string "a"'],
    "authorization {\n usr: a\n pasword: hush\n}": [
        'x.conf:2:2: authorization: unknown field "usr"; did you mean',
        'x.conf:3:2: authorization: unknown field "pasword"; did you mean',
    ],
    "authorization {\n users: [\n  {user: a}\n  {pass: hush}\n ]\n}": [
        "x.conf:4:4: authorization: users: User entry requires a user",
    ],
    "authorization { user: a, password: b, token: c }": [
        "x.conf:1:39: authorization: Cannot have a user/pass and token",
    ],
    "authorization { users: [{user: a, permissions: {publish: 'a..b'}}]}": [
        'x.conf:1:49: authorization: users: permissions: publish: subject "a..b" is not a valid',
    ],
    "accounts { A { users: [{user: u}] }, B { users: [{user: u}] } }": [
        'x.conf:1:50: Duplicate user "u" detected',
    ],
    "accounts { A { users: [{user: u}] } }\nauthorization { token: hush }": [
        "x.conf:1:16: Can not have a token and accounts",
    ],
    "accounts {\n $G { users: [{user: u}] } }": ['x.conf:2:2: "$G" is a Reserved Account'],
    "authorization { token: hush, users: [] }": [
        "x.conf:1:30: authorization: Can not have a token and a users array",
    ],
    "authorization { users: [], user: u, password: hush }": [
        "x.conf:1:17: authorization: Can not have a single user/pass and a users array",
    ],
    f"authorization {{ auth_callout {{ issuer: {public_key('A')}, users: [u]\n"
    " allowed_accounts: [A] } }": [
        'x.conf:2:2: auth_callout allowed account "A" not found in configured accounts'
    ],
    "port: 1\nserver_name: 'a b'": ["x.conf:2:1: server name cannot contain spaces"],
    "port: 1\nmax_pending: 1024": ["x.conf:2:1: max_payload (1048576) cannot be higher than"],
    "port: 1\nmax_pending_total: 1024": ["x.conf:2:1: max_pending (67108864) cannot be higher"],
    "port: 1\nlame_duck_grace_period: '2m'": [
        "x.conf:2:1: lame duck grace period (2m0s) should be"
    ],
    "port: 1\nlame_duck_duration: '29s'": [
        "x.conf:2:1: invalid lame_duck_duration of 29s, minimum is 30 seconds"
    ],
    "port: 1\nlame_duck_duration: 45": [
        "x.conf:2:1: lame_duck_duration must be a text such as '2m', not 45"
    ],
    "lame_duck_grace_period: 5": ["x.conf:1:1: lame_duck_grace_period must be a text such as"],
    "write_deadline: true": [
        "x.conf:1:1: write_deadline is no duration such as '10s' or '2m': write seconds, or a "
        "text, not true ("
    ],
    "max_payload: [1, on, {a: 'b'}]": [
        "x.conf:1:1: max_payload must be a whole number, not a list ("
    ],
    "storedir: a\njetstream { store_dir: b }": ["x.conf:1:1: store_dir is given twice"],
    "default_js_domain {\n A: hub }": ["x.conf:2:2: in non operator mode, `default_js_domain`"],
    "feature_flags {\n js_ack_fc_v2: true }": [
        "x.conf:2:2: feature_flags: natsd does not support js_ack_fc_v2 yet"
    ],
    "port: 1\ndefault_sentinel: hush": [
        "x.conf:2:1: default sentinel requires operators and accounts"
    ],
    "accounts { A { exports: [{stream: x, response: single}] } }": [
        "x.conf:1:38: accounts: A: exports: Detected response directive on non-service",
    ],
    "accounts { A { exports: [{stream: x, service: y}] } }": [
        'x.conf:1:38: accounts: A: exports: Detected service "y" but already saw a stream',
    ],
    "accounts { A { imports: [{service: {}, stream: {}}] } }": [
        "x.conf:1:40: accounts: A: imports: Detected stream but already saw a service",
    ],
    "accounts { A { exports: {stream: x}, imports: 5 } }": [
        "x.conf:1:16: accounts: A: exports: Exports should be an array",
        "x.conf:1:38: accounts: A: imports: Imports should be an array",
    ],
    "accounts { A { exports: [{service: x, response: all}] } }": [
        'x.conf:1:39: accounts: A: exports: response_type: Unknown response type: "all"',
    ],
    "accounts { A { exports: [{service: x, threshold: y}] } }": [
        "x.conf:1:39: accounts: A: exports: response_threshold: Expected response threshold to be "
        'a parseable time duration, got "y"',
    ],
    "accounts { A { exports: [{service: x, latency: 5}] } }": [
        "x.conf:1:39: accounts: A: exports: latency: Expected latency entry to be a map/struct or",
    ],
    "accounts { A { imports: [{service: {account: B, subject: x}, to: y},\n"
    "  {service: {account: B, subject: z}, to: y}] } }": [
        'x.conf:2:3: accounts: A: imports: Duplicate service import subject "y", previously used '
        'in import for account "B", subject "x"',
    ],
    "accounts { A { mappings: { x: [{dest: y, weight: 60}, {dest: z, weight: 60}] } } }": [
        "x.conf:1:28: accounts: A: mappings: x: total weight needs to be <= 100",
    ],
    "no_auth_user: x": [
        'x.conf:1:1: no_auth_user: "x" present, but users/nkeys are not defined',
    ],
    "tls { cert_file: /none, key_file: /none }": [
        "x.conf:1:1: tls: error parsing X509 certificate/key pair: open /none: no such file",
    ],
    "mqtt {\n tls { cert_file: /none, key_file: /none } }": [
        "x.conf:2:2: mqtt: tls: error parsing X509 certificate/key pair: open /none: no such file",
    ],
    "tls { cert_file: /none }": ["x.conf:1:7: tls: missing 'key_file' in TLS configuration"],
    "tls { cipher_suites: [] }": ["x.conf:1:7: tls: cipher_suites: cannot be empty"],
    "tls { cipher_suites: [TLS_RSA_WITH_RC4_128_SHA] }": [
        "x.conf:1:7: tls: insecure cipher suites configured without",
    ],
    "resolver: { type: full }": ["x.conf:1:1: resolver: dir has no value"],
    "resolver: { type: cache, dir: /x, allow_delete: true }": [
        "x.conf:1:35: resolver: CACHE does not accept allow_delete",
    ],
    "operator: /none": ["x.conf:1:1: operators: error parsing operator JWT: open /none: no such"],
    "jetstream { tpm { keys_file: x } }": [
        "x.conf:1:13: jetstream: tpm: keys in a TPM are not supported",
    ],
    "gateway { name: a }\nwebsocket { port: 1, no_tls: true }": [
        "x.conf:1:1: gateway: natsd does not support gateways",
        "x.conf:2:1: websocket: natsd does not support WebSocket",
    ],
    "cluster { pool_size: -1, accounts: [A] }": [
        "x.conf:1:11: cluster: pool_size cannot be negative if pinned accounts are specified"
    ],
    "cluster { accounts: [A, A] }": [
        "x.conf:1:25: cluster: found duplicate account name 'A' in pinned accounts list"
    ],
    "cluster { routes: ['nats://u:hush@a:1',\n'nats://u:hush@a'] }": [
        "x.conf:2:1: cluster: the URL of a route must have a host and a port"
    ],
    "cluster { cluster_advertise: 'a:b:c' }": [
        "x.conf:1:11: cluster: cluster_advertise must be host or host:port, not 'a:b:c'"
    ],
    "cluster { lisen: 6222 }": ['x.conf:1:11: cluster: unknown field "lisen"; did you mean'],
    "gateway { name: g }": ["x.conf:1:1: gateway: natsd does not support gateways"],
    "leafnodes { remotes: [{url: 'nats://a:1'}] }": [
        "x.conf:1:1: leafnodes: natsd does not support leaf nodes"
    ],
    "mqtt { port: 1883 }": ["x.conf:1:1: mqtt: natsd does not support MQTT"],
    "ocsp: true": ["x.conf:1:1: ocsp: natsd does not support OCSP stapling"],
    "ocsp_cache: true": ["x.conf:1:1: ocsp_cache: natsd does not support a cache of OCSP"],
    "ocsp_cache { type: never }": ["x.conf:1:14: ocsp_cache: type must be one of local, none"],
    "ocsp_cache { interval: 1 }": ['x.conf:1:14: ocsp_cache: unknown field "interval"'],
    "ocsp_cache: 5": ["x.conf:1:1: ocsp_cache: must be a mapping of settings"],
    "tls { cert_match_by: issuer }": ["x.conf:1:7: tls: the certificate store of Windows"],
    "tls { verify_cert_and_check_known_urls: true }": [
        "x.conf:1:7: tls: verify_cert_and_check_known_urls not supported in this context"
    ],
    "tls { ocsp_peer { verify: true } }": ["x.conf:1:7: tls: ocsp_peer is not supported yet"],
    "tls { ocsp_peer { verfy: true } }": ['x.conf:1:19: tls: ocsp_peer: unknown field "verfy"'],
    "remote_syslog: 'ftp://x'": ["x.conf:1:1: remote_syslog: invalid network type"],
    "https: 8443": ["x.conf:1:1: TLS cert and key required for HTTPS"],
    "https: 8443, http: 8222, tls {cert_file: c, key_file: k}": [
        "x.conf:1:1: can't specify both HTTP (8222) and HTTPs (8443) ports"
    ],
    "http_user: scraper": ["x.conf:1:1: http_user and http_password need each other"],
    "http_password: hush": ["x.conf:1:1: http_user and http_password need each other"],
}


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_have_a_place_and_advice(text: str, tmp_path: Path) -> None:
    found = mistakes(tmp_path, text)
    assert len(found) == len(MISTAKES[text])
    for line, beginning in zip(found, MISTAKES[text], strict=True):
        assert line.startswith(beginning)
        assert "hush" not in line
        assert "\n" not in line


def test_flags_override_the_file_and_the_file_the_defaults(tmp_path: Path) -> None:
    text = "port: 1\nmax_payload: 100\ndebug: on\njetstream { domain: hub }"
    options = load(tmp_path, text, port=2, debug=False, jetstream=False).options
    assert (options.port, options.max_payload, options.debug) == (2, 100, False)
    assert (options.jetstream.enabled, options.jetstream.domain) == (False, "hub")
    assert options.max_connections == Options().max_connections


LOGINS: dict[str, dict[str, Any]] = {
    "users: [{user: a, password: b}]": {"token": "t"},
    "user: u, password: p": {"token": "t"},
    "token: t": {"user": "u", "password": "p"},
}


@pytest.mark.parametrize("text", LOGINS)
def test_a_login_of_flags_adds_to_that_of_the_file(text: str, tmp_path: Path) -> None:
    flags = LOGINS[text]
    login = load(tmp_path, f"authorization {{ {text} }}", **flags).options.authorization
    assert {name: getattr(login, name) for name in flags} == flags
    assert login.token == "t"


def test_a_login_of_flags_excludes_users_of_accounts(tmp_path: Path) -> None:
    text = "accounts { A { users: [{user: a}] } }"
    expected = ["x.conf:1:16: Can not have a single user/pass and accounts"]
    assert mistakes(tmp_path, text, user="u", password="p") == expected


def test_no_grace_period_stands_for_the_default(tmp_path: Path) -> None:
    options = load(tmp_path, "lame_duck_grace_period: '0s'").options
    assert options.lame_duck_grace_period == Options().lame_duck_grace_period


def test_tls_of_the_command_line(tmp_path: Path) -> None:
    assert load(tmp_path, "tls { timeout: 3 }", **{"tls.enabled": False}).options.tls is None
    with pytest.raises(OptionsError, match="TLS Server certificate must be present"):
        load(tmp_path, "", **{"tls.verify": True})


def test_a_cluster_of_the_command_line(tmp_path: Path) -> None:
    listening = {"cluster.listen": "nats://a:b@host:-1"}
    cluster = load(tmp_path, "", **listening).options.cluster
    assert cluster is not None
    assert (cluster.host, cluster.port) == ("host", -1)
    assert (cluster.authorization.user, cluster.authorization.password) == ("a", "b")
    assert load(tmp_path, "cluster { name: a }", **{"cluster.listen": ""}).options.cluster
    with pytest.raises(OptionsError, match="solicited routes require cluster capabilities"):
        load(tmp_path, "", **{"cluster.routes": "nats://a:1"})


def test_accounts_and_what_they_share(tmp_path: Path) -> None:
    text = """
    accounts {
      A { exports: [{stream: "s.>"}, {service: "q", accounts: [B], response: stream,
                     threshold: "5s", latency: {subject: "l", sampling: headers}}] }
      B { imports: [{stream: {account: A, subject: "s.a"}, prefix: p},
                    {service: {account: A, subject: q}, to: "ask", share: true}] }
      C: {}
    }"""
    accounts = load(tmp_path, text).options.accounts
    stream, service = accounts["A"].exports
    assert stream == StreamExport(subject="s.>")
    assert isinstance(service, ServiceExport)
    assert (service.accounts, service.response_type) == (("B",), "stream")
    assert service.response_threshold == timedelta(seconds=5)
    assert service.latency is not None
    assert (service.latency.subject, service.latency.sampling) == ("l", 0)
    assert accounts["B"].imports == (
        StreamImport(account="A", subject="s.a", prefix="p"),
        ServiceImport(account="A", subject="q", to="ask", share=True),
    )
    assert accounts["C"].jetstream is None
    ignored = text.replace("prefix: p", "prefix: p, share: true").replace("to:", "prefix: x, to:")
    assert load(tmp_path, ignored).options.accounts == accounts
    assert list(load(tmp_path, "accounts: [X, Y]").options.accounts) == ["X", "Y"]


def test_permissions(tmp_path: Path) -> None:
    text = """authorization { users: [ { user: u, permissions: {
      pub: { allow: "a", deny: ["b", "c"] }, sub: ["d", "e q"], allow_responses: true } } ] }"""
    (user,) = load(tmp_path, text).options.authorization.users
    assert user.permissions is not None
    assert (user.permissions.publish.allow, user.permissions.publish.deny) == (("a",), ("b", "c"))
    assert (user.permissions.subscribe.allow, user.permissions.subscribe.deny) == (("d", "e q"), ())
    assert user.permissions.allow_responses is not None
    only = "authorization { users: [ { user: u, permissions: { allow_responses: {max: 3} } } ] }"
    (user,) = load(tmp_path, only).options.authorization.users
    assert user.permissions is not None
    assert user.permissions.publish.allow == ()


WARNINGS = {
    "accounts { A { msg_trace { sampling: 5 } } }": (
        "x.conf:1:16: Trace destination sampling ignored since no destination was set"
    ),
    "": "x.conf: config has no values or is empty",
    "ping_interval: 5": 'x.conf:1:1: invalid use of field "ping_interval": ping_interval should be',
    "authorization { timeout: 1m }": 'x.conf:1:1: invalid use of field "timeout": timeout of 1e+06',
}


@pytest.mark.parametrize("text", WARNINGS)
def test_warnings(text: str, tmp_path: Path) -> None:
    (warning,) = load(tmp_path, text).warnings
    assert warning.removeprefix(f"{tmp_path}/").startswith(WARNINGS[text])


def test_the_key_of_the_environment_counts_with_a_file_too(tmp_path: Path) -> None:
    path = tmp_path / "x.conf"
    path.write_text("jetstream: on")
    environment = {"NATSD_JETSTREAM_KEY": "hush"}
    assert load_options(path, {}, environment).options.jetstream.key == "hush"
    assert "hush" not in repr(load_options(path, {}, environment))
    path.write_text("jetstream: off")
    assert load_options(path, {}, environment).options.jetstream.key == ""
