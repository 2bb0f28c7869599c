"""Every monitoring answer beside that of nats-server 2.14, under the same load.

`REQUESTS` has every option of every endpoint (reference §8), and values that cannot be used.
Status, headers, texts, keys, their order, JSON types and values must be equal; `MAY_DIFFER` lists
the fields that may differ, each with its reason. docs/differences.md describes those that differ on
purpose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

import pytest

from tests.clients.secure import Trust
from tests.jetstream.behaviour.schemas import validator
from tests.monitor.beside import PLAIN, TENANTS, Answer, Side, both, newer_go_server, put_load
from tests.monitor.comparing import Difference, differences

pytestmark = pytest.mark.skipif(
    newer_go_server() is None, reason="there is no nats-server of version 2.14 or later on PATH"
)

CONNZ: Final = """
    ? ?auth=1 ?subs=1 ?subs=detail ?subs=DETAIL ?subs=2 ?subs=x ?auth=x ?auth=true&subs=true
    ?auth=1&subs=detail ?state=open ?state=closed&auth=1&subs=1 ?state=closed&subs=detail ?state=any
    ?state=all&auth=1 ?state=ALL ?state=nope ?sort=cid ?sort=start ?sort=subs ?sort=pending
    ?sort=msgs_to ?sort=msgs_from ?sort=bytes_to ?sort=bytes_from ?sort=last ?sort=idle
    ?sort=uptime ?sort=rtt ?sort=stop ?sort=reason ?sort=stop&state=closed
    ?sort=reason&state=closed ?sort=stop&state=all ?sort=bad ?sort=CID ?limit=2 ?offset=2
    ?offset=99 ?offset=-1 ?limit=-1 ?limit=0 ?limit=x ?offset=x ?limit=99999999999999999999
    ?offset=1&limit=1 ?limit=1&limit=3 ?limit=%2B1 ?limit=1_0 ?limit=0x10 ?limit=%201 ?LIMIT=x
    ?cid={alpha} ?cid={gone} ?cid={gone}&state=closed ?cid={gone}&state=all ?cid=999999 ?cid=x
    ?cid=-1 ?cid=99999999999999999999999 ?cid={alpha}&offset=5
    ?cid={alpha}&limit=7&auth=1&subs=detail ?user=ann ?user=nobody ?user=ann&state=all&auth=1
    ?acc=A ?acc=A&state=all ?acc=NONE ?acc=SYS&auth=1 ?acc=$G ?mqtt_client=x ?callback=f ?x=;y=1
    ?limit=1;offset=2 ?limit=1%zz ?subs ?auth&limit=1 ?&&limit=2&
"""
SUBSZ: Final = """
    ? ?subs=1 ?subs=x ?subs=detail ?acc=A&subs=1 ?acc=NONE&subs=1 ?acc=C&subs=1 ?test=a.b
    ?test=a.b&subs=1&acc=A ?test=q.1&subs=1&acc=A ?test=a.*&subs=1 ?test=a..b ?test=a. ?offset=x
    ?limit=x ?acc=A&subs=1&limit=1000&offset=1000 ?offset=-2&limit=-2
"""
JSZ: Final = """
    ? ?acc=A ?acc=NONE ?acc=C ?accounts=1 ?accounts=x ?streams=1 ?streams=x ?consumers=1
    ?consumers=x ?direct-consumers=1 ?direct-consumers=x ?consumers=1&direct-consumers=1 ?config=1
    ?config=x ?streams=1&config=1 ?consumers=1&config=1
    ?consumers=1&config=1&direct-consumers=1&raft=1 ?leader-only=1 ?leader-only=x
    ?stream-leader-only=1 ?stream-leader-only=1&streams=1&accounts=1 ?stream-leader-only=x ?raft=1
    ?raft=x ?raft=1&streams=1 ?offset=1&accounts=1 ?offset=x ?offset=99&accounts=1
    ?limit=1&accounts=1 ?limit=x ?limit=-1&accounts=1 ?acc=A&streams=1 ?acc=A&consumers=1&config=1
    ?acc=A&accounts=1&streams=0
"""
HEALTHZ: Final = """
    ? ?js-enabled-only=1 ?js-enabled-only=x ?js-enabled=1 ?js-enabled=x ?js-server-only=1
    ?js-server-only=x ?js-meta-only=1 ?js-meta-only=x ?account=A ?account=NONE ?account=C
    ?account=A&stream=ORDERS ?account=A&stream=NONE ?stream=ORDERS ?consumer=pull
    ?account=A&consumer=pull ?account=A&stream=ORDERS&consumer=pull
    ?account=A&stream=ORDERS&consumer=none ?details=1 ?details=x ?account=NONE&details=1
    ?account=A&stream=NONE&details=1 ?stream=ORDERS&details=1
    ?account=A&stream=ORDERS&consumer=none&details=1
"""
REQUESTS: Final[dict[str, str]] = {
    "/varz": "? ?x=1",
    "/connz": CONNZ,
    "/subsz": SUBSZ,
    "/subscriptionsz": "?",
    "/accountz": "? ?acc=A ?acc=B ?acc=C ?acc=SYS ?acc=$G ?acc=NONE ?acc=",
    "/accstatz": "? ?unused=1 ?unused=0 ?unused=x",
    "/jsz": JSZ,
    "/healthz": HEALTHZ,
    "/routez": "? ?subs=1 ?subs=detail ?subs=x",
    "/gatewayz": "? ?accs=1 ?accs=x ?subs=x ?subs=detail ?gw_name=x&acc_name=y",
    "/leafz": "? ?subs=1 ?subs=x ?acc=A",
    "/raftz": "? ?acc=A ?acc=NONE ?group=x",
    "/ipqueuesz": "? ?all=x ?queues=none ?all=1&queues=none",
    "/debug/vars": "?",
    "/stacksz": "?",
    "/": "?",
}
OTHER_REQUESTS: Final = """
    HEAD /varz, HEAD /connz?limit=x, HEAD /nowhere, HEAD /, HEAD /healthz, HEAD /stacksz,
    HEAD /raftz, POST /varz, PUT /connz, DELETE /jsz, OPTIONS /varz, PATCH /healthz, POST /nowhere,
    GET /nowhere, GET /varz/, GET //varz, GET /./varz, GET /x/../varz, GET /VARZ, GET /varz/x,
    GET /varz%2F, GET /%76arz, GET /debug, GET /debug/, GET /debug/pprof/, GET /debug/vars/,
    GET /favicon.ico, GET /connz/../varz?x=1, GET /.., GET /%, GET /%zz, GET /varz%00,
    GET /%2e%2e/varz, GET //, HEAD //varz
"""

UNCOUNTED: Final = ("/expvarz", "/ipqueuesz", "/raftz", "/stacksz")
"""Endpoints that only natsd counts."""
MAY_DIFFER: Final[dict[str, str]] = {
    r"/\w+\.(port|mem|cpu|config_digest)": "it is the process's own",
    r"/connz.*\.port": "the system chooses the client's port",
    r"/\w+(\.jetstream)?\.config\.store_dir": "each server has its own directory",
    r"/varz\.(natsd|go|gomaxprocs)": "natsd's version; its language; one event loop uses one core",
    r"/varz\.http_port": "natsd shows the port that the system chose, nats-server -1",
    r"/\w+(\.jetstream)?\.config\.sync_always": "natsd's default",
    r"/varz\.http_req_stats.*": "the load waits by asking; see test_requests_are_counted_alike",
    r"/varz\.(subscriptions|stalled_clients)": "of the server itself; a matter of time",
    r"/(subsz|subscriptionsz)\.(num_|cache_|max_fan|avg_fan|total).*": "the server's own subjects",
    r"/accountz.*\.(sublist_stats\..*|subscriptions)": "the server's own subjects",
    r"/accstatz.*\.num_subscriptions": "the server's own subjects",
    r"/accstatz.*\.sent\..*": "natsd counts an import for the account whose client gets it",
    r"/connz.*\.subscriptions_list_detail\[\]\.msgs": "natsd counts what an import delivers",
    r"/subsz\.subscriptions_list.*\.msgs": "natsd counts what an import delivers",
    r"/(varz|connz|accstatz).*\.(out_\w+|pending_bytes|stalls)": "a matter of time; texts of infos",
    r"/(varz|jsz).*\.(storage|bytes)": "the sizes of a record differ (docs/differences.md)",
    r"/jsz.*\.(active|pause_remaining)": "a matter of time",
    r"/jsz.*\.(deliver_subject|direct_consumer_detail\[\](\.config)?\.name)": "random",
    r"/connz.*\.tls_cipher_suite": "OpenSSL prefers another suite than Go",
    r"/debug/vars\.(cmdline|memstats).*": "Python has other statistics",
    r"/(stacksz)?": "threads and tasks; natsd's own page",
}


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return Trust(tmp_path_factory.mktemp("trust"))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory, trust: Trust) -> Iterator[tuple[Side, Side]]:
    with both(TENANTS, tmp_path_factory.mktemp("tenants"), trust) as sides:
        for side in sides:
            put_load(side)
        yield sides


def assert_alike(sides: tuple[Side, Side], method: str, path: str) -> None:
    """Assert that both servers answer a request alike; `{name}` stands for a client's number."""
    answers = []
    for side in sides:
        names = side.cids()
        numbers = {name: number for number, name in names.items()}
        asked = path.replace("{", "{0[").replace("}", "]}").format(numbers)
        answer = side.ask(asked, method)
        answer.body = named(answer.body, names)
        answers.append(answer)
    ours, theirs = answers
    endpoint = unquote(path.partition("?")[0])
    found = [
        difference
        for difference in answer_differences(ours, theirs, endpoint)
        if not any(re.fullmatch(pattern, difference[0]) for pattern in MAY_DIFFER)
    ]
    assert not found, (method, path)


def answer_differences(ours: Answer, theirs: Answer, endpoint: str) -> Iterator[Difference]:
    if ours.status != theirs.status:
        yield "status", f"{ours.status}, not {theirs.status}"
    if ours.headers != theirs.headers:
        yield "headers", f"{ours.headers}, not {theirs.headers}"
    yield from differences(ours.body, theirs.body, endpoint)


def named(value: Any, names: dict[int, str]) -> Any:
    """Return the value with clients' names for their numbers, without rows of other clients.

    The other clients are the server's own, whose subscriptions differ.
    """
    if isinstance(value, dict):
        return {
            key: names.get(each, each) if key == "cid" else named(each, names)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [
            named(each, names)
            for each in value
            if not isinstance(each, dict) or each.get("cid", "") in names or "cid" not in each
        ]
    return value


@pytest.mark.parametrize("endpoint", REQUESTS)
def test_an_endpoint_answers_alike_with_all_its_options(
    loaded: tuple[Side, Side], endpoint: str
) -> None:
    for query in REQUESTS[endpoint].split():
        assert_alike(loaded, "GET", endpoint + query)


def test_other_methods_and_paths_are_answered_alike(loaded: tuple[Side, Side]) -> None:
    for request in OTHER_REQUESTS.split(","):
        assert_alike(loaded, *request.split())


@pytest.mark.parametrize(
    "query",
    [
        *("cid", "start", "msgs_from", "bytes_from", "subs"),
        *("uptime&state=open", "stop&state=closed", "reason&state=closed"),
    ],
)
def test_connections_are_sorted_alike(loaded: tuple[Side, Side], query: str) -> None:
    orders = []
    for side in loaded:
        rows = side.ask(f"/connz?sort={query}").body["connections"]
        key = {"msgs_from": "in_msgs", "bytes_from": "in_bytes", "subs": "subscriptions"}
        field = key.get(query, "reason" if "reason" in query else "name")
        orders.append([row.get(field, "") for row in rows])
    assert orders[0] == orders[1]


def test_requests_are_counted_alike(loaded: tuple[Side, Side]) -> None:
    for side in loaded:
        before = side.ask("/varz").body["http_req_stats"]
        for path in ("/", "/connz", "/subscriptionsz", "/debug/vars", "/nowhere", "/jsz?limit=x"):
            side.ask(path)
        after = side.ask("/varz").body["http_req_stats"]
        counted = {name: count - before.get(name, 0) for name, count in after.items()}
        counted = {
            name: count for name, count in counted.items() if count and name not in UNCOUNTED
        }
        assert counted == {"/": 1, "/connz": 1, "/subsz": 1, "/jsz": 1, "/varz": 1}


def test_varz_keeps_to_its_schema(loaded: tuple[Side, Side]) -> None:
    schema = validator("io.nats.server.monitor.v1.varz")
    if schema is None:
        pytest.skip("the schemas that NATS publishes are not there")
    for side in loaded:
        errors = [error.message for error in schema.iter_errors(side.ask("/varz").body)]
        assert not errors


SERVICES: Final[dict[str, tuple[Any, ...]]] = {
    "VARZ": (None, {}),
    "CONNZ": (
        *(None, {"auth": True, "subscriptions": True}, {"subscriptions_detail": True, "acc": "A"}),
        *({"state": 1}, {"state": 2, "sort": "reason"}, {"sort": "bad"}, {"limit": 2, "offset": 1}),
        *({"acc": "A", "filter_subject": "a.b"}, {"filter_subject": "a.b"}, {"user": "ann"}),
        *({"cid": "x"}, {"limit": "x"}),
    ),
    "SUBSZ": (None, {"subscriptions": True, "account": "A"}, {"test": "a.*"}, {"limit": []}),
    "ACCOUNTZ": (None, {"account": "A"}, {"account": "NONE"}),
    "JSZ": (
        *(None, {"accounts": True}, {"streams": True, "config": True}, {"leader_only": True}),
        *({"consumer": True, "direct_consumer": True}, {"account": "A", "consumer": True}),
        *({"account": "NONE"}, {"raft": True}, {"limit": 1, "accounts": True}, {"streams": 1}),
    ),
    "HEALTHZ": (
        *(None, {"account": "A", "stream": "NONE"}, {"stream": "X"}, {"details": True}),
        *({"js-enabled-only": True}, {"account": "A", "stream": "NONE", "details": True}),
    ),
    "ROUTEZ": (None, {"subscriptions": True}),
    "GATEWAYZ": (None, {"accounts": True}, {"accounts": 5}),
    "LEAFZ": (None, {"account": "A"}),
    "RAFTZ": (None, {"account": "A"}),
    "IPQUEUESZ": ({"filter": "none"},),
}
ABOUT_SERVER: Final = (
    r"SERVER\.server\.(seq|time|jetstream|flags|feature_flags|natsd|ver)",
    r"SERVER\.server\.(cluster|tags|metadata)",
)


@pytest.mark.parametrize("kind", SERVICES)
def test_the_services_of_the_system_account_answer_alike(
    loaded: tuple[Side, Side], kind: str
) -> None:
    for body in SERVICES[kind]:
        replies = []
        for side in loaded:
            asker = side.wires.get("system asker") or side.open("system asker", "sys")
            reply = side.request(asker, f"$SYS.REQ.SERVER.PING.{kind}", body)
            replies.append(named(reply, side.cids()))
        ours, theirs = (reply.pop("data", None) for reply in replies)
        found = [*differences(ours, theirs, f"/{kind.lower()}")]
        found += differences(replies[0], replies[1], "SERVER")
        allowed = (*MAY_DIFFER, *ABOUT_SERVER)
        left = [each for each in found if not any(re.fullmatch(row, each[0]) for row in allowed)]
        assert not left, (kind, body)


def test_a_server_without_jetstream_and_with_a_base_path(
    tmp_path_factory: pytest.TempPathFactory, trust: Trust
) -> None:
    with both(PLAIN, tmp_path_factory.mktemp("plain"), trust) as sides:
        for path in REQUESTS:
            if path not in ("/", "/stacksz", "/debug/vars", "/varz"):
                assert_alike_below(sides, path)
        for path in ("/nowhere", "/varz", "/nats", "/nats/mon", "/nats/mon/", "/nats//mon/varz"):
            answers = [side.ask(path) for side in sides]
            assert answers[0].status == answers[1].status, path
            assert answers[0].headers == answers[1].headers, path


def assert_alike_below(sides: tuple[Side, Side], path: str) -> None:
    """Assert that both servers answer alike below the base path."""
    answers = [side.ask(f"/nats/mon{path}") for side in sides]
    found = [
        each
        for each in answer_differences(answers[0], answers[1], path)
        if not any(re.fullmatch(pattern, each[0]) for pattern in MAY_DIFFER)
    ]
    assert not found, path
