"""Blocks of features that do not exist yet are checked; the texts are nats-server's."""

from datetime import timedelta
from pathlib import Path

import pytest

from natsd.config.leafnode_options import LeafUser, MigrateOptions
from tests.config.keys import public_key
from tests.config.test_load import load, mistakes

MISTAKES = {
    "cluster { name: 'a b' }": "1:11: cluster: cluster name cannot contain spaces",
    "cluster { authorization {\n users: [{user: a}] } }": (
        "2:2: cluster: Cluster authorization does not allow multiple users"
    ),
    "gateway { authorization {\n token: hush } }": (
        "2:2: gateway: Gateway authorization does not support tokens"
    ),
    "cluster { permissions {\n allow_responses: true } }": (
        "2:2: cluster: permissions: Cluster permissions do not support dynamic responses"
    ),
    "cluster { permissions { import: 'a'\n export: 'a q' } }": (
        '2:2: cluster: permissions: cluster export allow: subject "a q" is not a valid subject'
    ),
    "cluster { compression: slow }": (
        '1:11: cluster: compression: unsupported compression mode "slow"'
    ),
    "cluster { compression: 5 }": "1:11: cluster: compression: should be a boolean or a structure",
    "cluster { compression { mode: auto, level: 1 } }": (
        '1:37: cluster: compression: unknown field "level"'
    ),
    "cluster { compression { mode: s2_auto, rtt: ['20ms', '10ms'] } }": (
        "1:40: cluster: compression: RTT threshold values [20ms 10ms] should be in ascending order"
    ),
    "cluster { compression { mode: auto, rtts: ['1ms', '2ms', '3ms', '4ms', '5ms'] } }": (
        '1:37: cluster: compression: compression mode "auto" should have no more than 4 RTT'
    ),
    "cluster { compression { mode: auto, thresholds: ['0s'] } }": (
        '1:37: cluster: compression: compression mode "auto" requires at least one RTT threshold'
    ),
    "cluster { compression { rtt: [10] } }": (
        "1:31: cluster: compression: rtt_thresholds: is no duration such as '10ms'"
    ),
    "leafnodes { min_version: 2.7.0 }": (
        "1:13: leafnodes: the minimum version should be at least 2.8.0"
    ),
    "leafnodes { min_version: x }": "1:13: leafnodes: invalid leafnode's minimum version",
    "leafnodes { authorization { token: hush } }": (
        '1:29: leafnodes: authorization: unknown field "token"'
    ),
    "leafnodes { authorization { user: a, users: [{user: b}] } }": (
        "1:38: leafnodes: authorization: can not have a single user/pass and a users array"
    ),
    "leafnodes { authorization { nkey: hush } }": (
        "1:29: leafnodes: authorization: Not a valid public nkey for leafnode authorization"
    ),
    "leafnodes { authorization { users: [{user: a}, {user: a}] } }": (
        '1:48: leafnodes: authorization: duplicate user "a" detected in leafnode authorization'
    ),
    "leafnodes { authorization { users: [{nkey: a}] } }": (
        '1:38: leafnodes: authorization: users: unknown field "nkey"'
    ),
    "leafnodes { remotes: [{nkey: hush}] }": (
        "1:24: leafnodes: remotes: Remote leafnode nkey is not a valid seed"
    ),
    "leafnodes { remotes: [{url: 'ws://a:1', proxy { url: 'ftp://b' }}] }": (
        "1:49: leafnodes: remotes: proxy: proxy URL scheme must be http or https, got: ftp"
    ),
    "leafnodes { remotes: [{proxy { url: 'http://' }}] }": (
        "1:32: leafnodes: remotes: proxy: proxy URL must specify a host"
    ),
    "leafnodes { remotes: [{proxy { url: 'http://a', password: hush }}] }": (
        "1:24: leafnodes: remotes: proxy: proxy username and password must both be specified"
    ),
    "leafnodes { remotes: [{proxy { port: 1 }}] }": (
        '1:32: leafnodes: remotes: proxy: unknown field "port"'
    ),
    "leafnodes { remotes: [{url: ['nats://a:1', 'ws://b:1']}] }": (
        "1:24: leafnodes: remotes: remote leaf node configuration cannot have a mix of websocket"
    ),
    "leafnodes { remotes: [{url: 'nats://a:1'}, {url: 'nats://a:1'}] }": (
        '1:44: leafnodes: remotes: duplicate remote of account "$G"'
    ),
    "leafnodes { remotes: [{deny_imports: 'a..b'}] }": (
        '1:24: leafnodes: remotes: deny_imports: subject "a..b" is not a valid subject'
    ),
    "leafnodes { remotes: [{js_cluster_migrate: 5}] }": (
        "1:24: leafnodes: remotes: jetstream_cluster_migrate: Expected boolean or map"
    ),
    "websocket { authorization { users: [] } }": (
        '1:29: websocket: authorization: unknown field "users"'
    ),
    "websocket { headers { a: 5 } }": "1:23: websocket: headers: a: must be a text",
    "mqtt { authentication { timeout: x } }": "1:25: mqtt: authorization: timeout is no duration",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_has_its_place(text: str, tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, text)
    assert found.startswith(f"x.conf:{MISTAKES[text]}")
    assert "hush" not in found


def test_compression_is_a_mode_a_switch_or_thresholds(tmp_path: Path) -> None:
    modes = {"on": "on", "off": "off", "s2_best": "s2_best", "{mode: auto}": "auto"}
    for given, mode in modes.items():
        cluster = load(tmp_path, f"cluster {{ compression: {given} }}").options.cluster
        assert cluster is not None
        assert cluster.compression.mode == mode
    text = "leafnodes { compression { mode: auto, rtt_thresholds: ['10ms', '0s', '20ms'] } }"
    leafnodes = load(tmp_path, text).options.leafnodes
    assert leafnodes is not None
    assert leafnodes.compression.rtt_thresholds == (
        timedelta(milliseconds=10),
        timedelta(0),
        timedelta(milliseconds=20),
    )


def test_logins_of_leaf_nodes(tmp_path: Path) -> None:
    text = f"""leafnodes {{ isolate: true, minimum_version: "2.10.1", net: "127.0.0.1",
      authorization {{ account: A, nkey: {public_key("U")}, timeout: 3 }} }}"""
    leafnodes = load(tmp_path, text).options.leafnodes
    assert leafnodes is not None
    assert leafnodes.authorization.account == "A"
    assert leafnodes.authorization.timeout == timedelta(seconds=3)
    text = "leafnodes { authorization { users: [{username: a, pass: hush, account: B}] } }"
    leafnodes = load(tmp_path, text).options.leafnodes
    assert leafnodes is not None
    assert leafnodes.authorization.users == (LeafUser(user="a", password="hush", account="B"),)
    assert "hush" not in repr(leafnodes)


def test_remotes_are_checked_before_leaf_nodes_are_refused(tmp_path: Path) -> None:
    text = """leafnodes { remotes: [{ urls: ["wss://a:1"], tls { insecure: true },
      proxy { url: "http://b:2", username: u, password: p, timeout: "5s" },
      compression { mode: fast }, jetstream_cluster_migrate { leader_migrate_delay: "5s" } }] }"""
    (refused,) = mistakes(tmp_path, text)
    assert refused == "x.conf:1:1: leafnodes: natsd does not support leaf nodes yet"
    assert MigrateOptions(leader_migrate_delay="5s").leader_migrate_delay == timedelta(seconds=5)
