"""The monitoring endpoints of a real server, requested over HTTP."""

import asyncio
import re
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession

from natsd import Server, __version__
from natsd.clients.listener import ListenError
from natsd.monitor import http_server
from natsd.monitor.connz import CONNECTIONS_PER_STEP
from natsd.monitor.internals import command_line
from natsd.monitor.json_text import pieces
from natsd.monitor.turns import Turns
from tests.clients.wire import Wire
from tests.monitor.probing import Probe, closed_client, probing

# The keys of nats-server 2.14.5's answers; natsd adds its own version.
KEYS = {
    "varz": """
        server_id server_name version natsd proto go host port max_connections ping_interval
        ping_max http_host http_port http_base_path https_port auth_timeout max_control_line
        max_payload max_pending cluster gateway leaf mqtt websocket jetstream tls_timeout
        write_deadline start now uptime mem cores gomaxprocs cpu connections total_connections
        routes remotes leafnodes in_msgs in_bytes in_client_msgs in_client_bytes out_msgs
        out_bytes out_client_msgs out_client_bytes slow_consumers stale_connections
        stalled_clients subscriptions http_req_stats config_load_time config_digest
        feature_flags system_account slow_consumer_stats stale_connection_stats
        disk_io_wait_stats""",
    "connz": "server_id now num_connections total offset limit connections",
    "connection": """
        cid kind type ip port start last_activity rtt uptime idle pending_bytes in_msgs out_msgs
        in_bytes out_bytes subscriptions name lang version""",
    "closed connection": """
        cid kind type ip port start last_activity stop reason rtt uptime idle pending_bytes
        in_msgs out_msgs in_bytes out_bytes subscriptions name lang version""",
    "subsz": """
        server_id now num_subscriptions num_cache num_inserts num_removes num_matches
        cache_hit_rate max_fanout avg_fanout total offset limit""",
}


def assert_keys(answer: dict[str, Any], kind: str) -> None:
    """Assert that the answer has nats-server's keys in its order."""
    assert list(answer) == KEYS[kind].split()


@pytest.fixture
async def probe() -> AsyncIterator[Probe]:
    async with probing() as probe:
        yield probe


# ---- varz


async def test_varz_has_the_keys_of_nats_server_in_their_order(probe: Probe) -> None:
    assert_keys(await probe.get("/varz"), "varz")


async def test_varz_says_who_the_server_is(probe: Probe) -> None:
    varz = await probe.get("/varz")
    server = probe.server
    assert (varz["server_id"], varz["port"]) == (server.id, server.client_port)
    assert (varz["version"], varz["natsd"]) == ("2.14.5", __version__)
    assert (varz["ping_interval"], varz["auth_timeout"]) == (120_000_000_000, 2)
    assert varz["mem"] > 1 << 20
    assert (varz["gomaxprocs"], varz["tls_timeout"]) == (1, 2)
    assert varz["feature_flags"] == {"js_ack_fc_v2": False, "js_raft_delete_range": False}


async def test_varz_counts_messages_connections_and_subscriptions(probe: Probe) -> None:
    own = (await probe.get("/varz"))["subscriptions"]
    async with probe.client() as one, probe.client() as two:
        await one.subscribe("orders.*")
        await one.flush()
        for _ in range(3):
            await two.publish("orders.new", b"12345")
        await two.flush()
        varz = await probe.get("/varz")
    assert (varz["connections"], varz["total_connections"]) == (2, 2)
    assert varz["subscriptions"] == own + 1
    assert (varz["in_msgs"], varz["in_bytes"]) == (3, 15)
    assert (varz["out_msgs"], varz["out_bytes"]) == (3, 15)
    assert (varz["in_client_msgs"], varz["out_client_bytes"]) == (3, 15)


async def test_requests_are_counted_by_endpoint(probe: Probe) -> None:
    for path in ("/", "/connz", "/subsz", "/subscriptionsz", "/connz?limit=x", "/nowhere"):
        await probe.ask(path)
    stats = (await probe.get("/varz"))["http_req_stats"]
    assert stats == {"/": 1, "/connz": 2, "/subsz": 2, "/varz": 1}


async def test_varz_says_that_credentials_are_needed() -> None:
    async with probing(user="ann", password="secret", max_subscriptions=10) as probe:
        varz = await probe.get("/varz")
    assert varz["auth_required"] is True
    assert varz["max_subscriptions"] == 10


# ---- connz


async def test_connz_describes_a_connection(probe: Probe) -> None:
    async with probe.client("alpha") as client:
        await client.subscribe("a.b")
        await client.flush()
        connz = await probe.get("/connz")
        assert_keys(connz, "connz")
        (row,) = connz["connections"]
        assert_keys(row, "connection")
        assert (row["name"], row["lang"], row["kind"], row["type"]) == (
            "alpha",
            "python3",
            "Client",
            "nats",
        )
        assert row["subscriptions"] == 1
        assert row["uptime"] == "0s"
        again = await probe.connections("")
        assert again[0]["start"] == row["start"]


async def test_connz_lists_subscriptions_by_name_or_in_detail(probe: Probe) -> None:
    async with probe.client() as client:
        await client.subscribe("a.b")
        await client.subscribe("q.*", queue="workers")
        limited = await client.subscribe("x.>")
        await limited.unsubscribe(5)
        await client.flush()
        (row,) = await probe.connections("subs=1")
        assert row["subscriptions_list"] == ["a.b", "q.*", "x.>"]
        (row,) = await probe.connections("subs=detail")
        cid = row["cid"]
        assert row["subscriptions_list_detail"] == [
            {"subject": "a.b", "sid": "1", "msgs": 0, "cid": cid},
            {"subject": "q.*", "qgroup": "workers", "sid": "2", "msgs": 0, "cid": cid},
            {"subject": "x.>", "sid": "3", "msgs": 0, "max": 5, "cid": cid},
        ]


async def test_connz_remembers_closed_connections(probe: Probe) -> None:
    async with probe.client("gone") as client:
        await client.publish("x", b"hello")
        await client.flush()
    async with probe.client("here"):
        (closed,) = await probe.connections("state=closed")
        assert_keys(closed, "closed connection")
        assert (closed["name"], closed["reason"]) == ("gone", "Client Closed")
        assert (closed["in_msgs"], closed["in_bytes"]) == (1, 5)
        assert closed["stop"] >= closed["last_activity"] >= closed["start"]
        everyone = await probe.get("/connz?state=any")
        assert [row["name"] for row in everyone["connections"]] == ["gone", "here"]
        assert everyone["total"] == 2
        by_cid = await probe.connections(f"state=all&cid={closed['cid']}")
        assert [row["name"] for row in by_cid] == ["gone"]


async def test_connz_pages(probe: Probe) -> None:
    async with probe.client("a"), probe.client("b"), probe.client("c"):
        page = await probe.get("/connz?offset=1&limit=1")
        assert [row["name"] for row in page["connections"]] == ["b"]
        assert (page["num_connections"], page["total"]) == (1, 3)
        assert (page["offset"], page["limit"]) == (1, 1)
        beyond = await probe.get("/connz?offset=9")
        assert (beyond["connections"], beyond["total"]) == ([], 3)
        defaults = await probe.get("/connz?offset=-4&limit=-1")
        assert (defaults["offset"], defaults["limit"]) == (0, 1024)


async def test_connz_by_cid_user_and_account() -> None:
    async with probing(user="ann", password="secret") as probe:
        async with probe.client("a", user="ann", password="secret"):
            (row,) = await probe.connections("auth=1")
            assert row["authorized_user"] == "ann"
            assert "account" not in row  # the global account is not named
            assert row["name_tag"] == "$G"
            assert "authorized_user" not in (await probe.connections(""))[0]
            assert len(await probe.connections("user=ann")) == 1
            assert await probe.connections("user=bob") == []
            assert len(await probe.connections("acc=$G")) == 1
            nobody = await probe.get("/connz?acc=nobody")
            assert (nobody["connections"], nobody["total"], nobody["server_id"]) == (None, 0, "")
            by_mqtt = await probe.get("/connz?mqtt_client=x")
            assert (by_mqtt["connections"], by_mqtt["total"]) == ([], 1)
            assert len(await probe.connections(f"cid={row['cid']}")) == 1
            nobody = await probe.get("/connz?cid=999")
            assert (nobody["connections"], nobody["limit"], nobody["total"]) == ([], 1, 1)


SORTED = {
    "": ("cid", [1, 2, 3]),
    "cid": ("cid", [1, 2, 3]),
    "start": ("cid", [1, 2, 3]),
    "subs": ("num_subscriptions", [3, 2, 1]),
    "pending": ("pending_bytes", [3, 2, 1]),
    "msgs_to": ("out_msgs", [3, 2, 1]),
    "msgs_from": ("in_msgs", [3, 2, 1]),
    "bytes_to": ("out_bytes", [3, 2, 1]),
    "bytes_from": ("in_bytes", [3, 2, 1]),
    "last": ("last_activity_ns", [3, 2, 1]),
    "idle": ("last_activity_ns", [1, 2, 3]),
    "rtt": ("rtt_ns", [3, 2, 1]),
    "stop": ("stop_ns", [3, 2, 1]),
    "reason": ("reason", [1, 2, 3]),
}


@pytest.mark.parametrize("sort", SORTED)
async def test_connz_sorts(probe: Probe, sort: str) -> None:
    field, expected = SORTED[sort]
    for cid in (2, 3, 1):
        value: object = f"reason {cid}" if field == "reason" else cid
        fields = {} if field == "cid" else {field: value}
        probe.server.closed_clients.append(closed_client(cid, **fields))
    rows = await probe.connections(f"state=closed&sort={sort}")
    assert [row["cid"] for row in rows] == expected


async def test_connz_sorts_by_uptime_youngest_first(probe: Probe) -> None:
    for cid, lived_ns in ((1, 30), (2, 10), (3, 20)):
        probe.server.closed_clients.append(closed_client(cid, stop_ns=cid + lived_ns))
    rows = await probe.connections("state=closed&sort=uptime")
    assert [row["cid"] for row in rows] == [2, 3, 1]


async def test_many_connections_do_not_hold_up_the_loop(probe: Probe) -> None:
    for cid in range(5000):
        probe.server.closed_clients.append(closed_client(cid))
    turns, answered = 0, asyncio.create_task(probe.connections("state=closed&limit=5000"))
    while not answered.done():
        await asyncio.sleep(0)
        turns += 1
    assert len(answered.result()) == 5000
    assert turns > 20  # the rows are made in slices, and the loop runs in between


def rows_with_subscriptions(count: int) -> Iterator[dict[str, Any]]:
    for cid in range(count):
        yield {"cid": cid, "subscriptions_list": (f"subject.{n}" for n in range(10))}


def subscribed(port: int) -> Wire:
    """Return a client with a thousand subscriptions."""
    wire = Wire(("127.0.0.1", port))
    wire.send(b"CONNECT {}\r\n" + b"".join(b"SUB subject.%d %d\r\n" % (n, n) for n in range(1000)))
    wire.sync()
    return wire


def read_connz(port: int) -> int:
    """Request all subscriptions in detail, and return the bytes of the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(
            b"GET /connz?subs=detail HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        size = 0
        while data := connection.recv(1 << 16):
            size += len(data)
        return size


async def test_twenty_long_answers_never_hold_the_loop_for_long(probe: Probe) -> None:
    """A round of the loop takes little processor time.

    Processor time is measured, not wall-clock time, so that a busy machine does not matter. It was
    890 ms when answers were written whole.
    """
    clients = [await asyncio.to_thread(subscribed, probe.server.client_port) for _ in range(5)]
    port = int(probe._url.rpartition(":")[2])
    await asyncio.to_thread(read_connz, port)
    with ThreadPoolExecutor(20) as threads:
        answers = [threads.submit(read_connz, port) for _ in range(20)]
        rounds_s, before_s = [], time.thread_time()
        while not all(answer.done() for answer in answers):
            await asyncio.sleep(0)
            now_s = time.thread_time()
            rounds_s.append(now_s - before_s)
            before_s = now_s
    assert min(answer.result() for answer in answers) > 500_000
    rounds_s.sort()
    assert rounds_s[len(rounds_s) * 99 // 100] < 0.005
    assert rounds_s[-1] < 0.05  # garbage collection may fall into it
    for client in clients:
        client.close()


async def test_of_many_long_answers_one_is_made_in_a_round_of_the_loop() -> None:
    """Twenty answers at once block the loop no longer than one."""
    turns = Turns()
    rounds, made = 0, []

    async def answer() -> bytes:
        text = pieces({"connections": rows_with_subscriptions(400)}, pretty=True)
        parts, is_last = [], False
        while not is_last:
            part, is_last = await turns.chunk(text)
            made.append(rounds)
            parts.append(part)
        return b"".join(parts)

    answers = [asyncio.create_task(answer()) for _ in range(20)]
    while not all(task.done() for task in answers):
        await asyncio.sleep(0)
        rounds += 1
    assert len({task.result() for task in answers}) == 1
    assert len(made) > 20  # none of them is made in one piece
    assert max(Counter(made).values()) <= 2  # one before and one after this task in the same round


@pytest.mark.parametrize("pretty", [True, False])
def test_an_answer_is_written_as_msgspec_writes_it(pretty: bool) -> None:
    answer = {
        "empty": [],
        "nothing": {},
        "null": None,
        "rows": [{"a": 1, "b": "x"}, {"c": [1, 2], "d": {"e": {"f": []}}}, 5, "six"],
        "tuple": (1.5, True),
    }
    whole = msgspec.json.encode(answer)
    expected = msgspec.json.format(whole, indent=2) if pretty else whole
    assert b"".join(pieces(answer, pretty=pretty)) == expected
    lazy = answer | {"rows": iter([iter_values(row) for row in answer["rows"]])}
    assert b"".join(pieces(lazy, pretty=pretty)) == expected


def iter_values(row: object) -> object:
    """Return the row with iterators in place of lists."""
    if not isinstance(row, dict):
        return row
    return {name: iter(value) if isinstance(value, list) else value for name, value in row.items()}


async def test_a_sorted_page_of_many_runs(probe: Probe) -> None:
    total = 3 * CONNECTIONS_PER_STEP + 7
    for cid in range(total):
        fields = {"in_msgs": cid * 7919 % total}
        probe.server.closed_clients.append(closed_client(cid, **fields))
    page = await probe.get(f"/connz?state=closed&sort=msgs_from&offset={total - 5}&limit=9")
    assert [row["in_msgs"] for row in page["connections"]] == [4, 3, 2, 1, 0]
    assert (page["num_connections"], page["total"]) == (5, total)


# ---- subsz


async def test_subsz_counts(probe: Probe) -> None:
    own = (await probe.get("/subsz"))["num_subscriptions"]
    async with probe.client() as client:
        await client.subscribe("a.b")
        await client.flush()
        await client.publish("a.b", b"")
        await client.flush()
        subsz = await probe.get("/subsz")
        assert_keys(subsz, "subsz")
        assert (subsz["num_subscriptions"], subsz["num_inserts"]) == (own + 1, own + 1)
        assert subsz["num_removes"] == 0
        assert subsz["num_matches"] >= 1
        assert (subsz["total"], subsz["offset"], subsz["limit"]) == (0, 0, 1024)
        by_account = [await probe.get(f"/subsz?acc={name}") for name in ("$G", "$SYS")]
        assert sum(each["num_subscriptions"] for each in by_account) == own + 1


async def test_subsz_lists(probe: Probe) -> None:
    async with probe.client() as client:
        own = (await probe.get("/subsz?acc=$G"))["num_subscriptions"]
        for subject in ("a.b", "a.*", "c"):
            await client.subscribe(subject, queue="q")
        await client.flush()
        subsz = await probe.get("/subsz?subs=1&acc=$G")
        assert subsz["total"] == own + 3
        first = next(row for row in subsz["subscriptions_list"] if "qgroup" in row)
        assert list(first) == ["account", "account_tag", "subject", "qgroup", "sid", "msgs", "cid"]
        assert (first["account"], first["cid"]) == ("$G", next(iter(probe.server.clients)))
        tested = await probe.get("/subscriptionsz?subs=1&test=a.b")
        assert sorted(row["subject"] for row in tested["subscriptions_list"]) == ["a.*", "a.b"]
        page = await probe.get(f"/subsz?subs=1&acc=$G&offset={own + 2}&limit=5")
        assert (len(page["subscriptions_list"]), page["total"]) == (1, own + 3)
        assert "subscriptions_list" not in await probe.get("/subsz?subs=1&acc=nobody")


async def test_subsz_pages_are_parts_of_the_whole(probe: Probe) -> None:
    """Pages also add up with a test subject; a limit of any size is a page."""
    async with probe.client() as client:
        for number in range(20):
            await client.subscribe(f"p.{number}", queue="q" if number % 3 else "")
            await client.subscribe("p.*")
        await client.flush()
        for query in ("acc=$G", "acc=$G&test=p.7", ""):
            whole = await probe.get(f"/subsz?subs=1&{query}&limit=100000")
            rows = whole["subscriptions_list"]
            assert len(rows) == whole["total"]
            paged = []
            for offset in range(0, whole["total"] + 7, 7):
                page = await probe.get(f"/subsz?subs=1&{query}&limit=7&offset={offset}")
                assert page["total"] == whole["total"]
                paged += page.get("subscriptions_list", [])
            assert paged == rows
        assert len([row for row in rows if row["subject"].startswith("p.")]) == 40


# ---- other endpoints of a single server

LONE = {
    "routez": "server_id server_name now num_routes routes",
    "gatewayz": "server_id now outbound_gateways inbound_gateways",
    "leafz": "server_id now leafnodes leafs",
    "accountz": "server_id now system_account accounts",
    "accstatz": "server_id now account_statz",
    "ipqueuesz": "",
    "debug/vars": "cmdline memstats",
}


async def test_a_lone_server_has_the_endpoints_of_a_cluster(probe: Probe) -> None:
    for path, expected in LONE.items():
        assert " ".join(await probe.get(f"/{path}")) == expected
    status, text, _ = await probe.ask("/raftz")
    assert (status, text) == (404, "No Raft nodes registered")
    stats = (await probe.get("/varz"))["http_req_stats"]
    assert (stats["/accstatz"], stats["/expvarz"], stats["/raftz"]) == (1, 1, 1)


async def test_stacksz_shows_threads_and_tasks(probe: Probe) -> None:
    async with ClientSession() as session, session.get(f"{probe._url}/stacksz") as response:
        text = await response.text()
    assert response.status == 200
    assert "thread " in text
    assert "task " in text
    assert "test_stacksz_shows_threads_and_tasks" in text


async def test_accountz_describes_an_account(probe: Probe) -> None:
    accounts = await probe.get("/accountz")
    assert (accounts["system_account"], accounts["accounts"]) == ("$SYS", ["$G", "$SYS"])
    async with probe.client():
        detail = (await probe.get("/accountz?acc=$G"))["account_detail"]
    assert " ".join(detail) == (
        "account_name update_time expired complete jetstream_enabled leafnode_connections "
        "client_connections subscriptions imports name_tag sublist_stats"
    )
    assert (detail["client_connections"], detail["jetstream_enabled"]) == (1, False)
    assert [row["to"] for row in detail["imports"]] == [
        "$SYS.REQ.ACCOUNT.PING.CONNZ",
        "$SYS.REQ.SERVER.PING.CONNZ",
        "$SYS.REQ.ACCOUNT.PING.STATZ",
        "$SYS.REQ.USER.INFO",
    ]
    system = (await probe.get("/accountz?acc=$SYS"))["account_detail"]
    assert system["is_system"] is True
    assert len(system["exports"]) == 4
    status, text, _ = await probe.ask("/accountz?acc=NONE")
    assert (status, text) == (400, "Account NONE does not exist")


async def test_accstatz_shows_accounts_in_use_or_all(probe: Probe) -> None:
    assert (await probe.get("/accstatz"))["account_statz"] == []
    everyone = (await probe.get("/accstatz?unused=1"))["account_statz"]
    assert [row["acc"] for row in everyone] == ["$G", "$SYS"]
    async with probe.client():
        (row,) = (await probe.get("/accstatz"))["account_statz"]
    assert (row["acc"], row["conns"], row["total_conns"]) == ("$G", 1, 1)


def test_a_command_line_is_shown_without_its_secrets() -> None:
    shown = command_line(["/bin/natsd", "-user", "ann", "--pass=x", "-auth", "-js", "-p", "1"])
    assert shown == [
        *("/bin/natsd", "-user", "[REDACTED]", "--pass=[REDACTED]", "-auth", "[REDACTED]"),
        *("-p", "1"),
    ]
    assert command_line(["/usr/bin/app", "--token", "x"]) == ["/usr/bin/app"]


async def test_messages_into_jetstream_and_acks_are_not_messages_out(tmp_path: Path) -> None:
    async with probing(jetstream=True, store_dir=tmp_path) as probe, probe.client() as client:
        stream = client.jetstream()
        await stream.add_stream(name="S", subjects=["s"])
        before = await probe.get("/varz")
        for _ in range(5):
            await client.publish("s", b"12345")  # without waiting for an ack
        await client.flush()
        consumer = await stream.pull_subscribe("s", "C")
        messages = await consumer.fetch(5, timeout=20)
        middle = await probe.get("/varz")
        for message in messages:
            await message.ack()
        await client.flush()
        after = await probe.get("/varz")
    own = sum(len(message.data) for message in messages)
    answers = 2  # to the creation of the consumer, and to nats-py's request before it
    assert 5 <= middle["out_msgs"] - before["out_msgs"] <= 5 + answers + 1
    assert middle["out_bytes"] - before["out_bytes"] >= own
    assert (after["out_msgs"], after["out_bytes"]) == (middle["out_msgs"], middle["out_bytes"])
    assert after["in_msgs"] - middle["in_msgs"] == 5
    assert (after["out_client_msgs"], after["out_client_bytes"]) == (
        after["out_msgs"],
        after["out_bytes"],
    )


# ---- health, errors, HTTP


async def test_healthz(probe: Probe) -> None:
    assert await probe.get("/healthz") == {"status": "ok"}
    assert await probe.get("/healthz?details=true&js-enabled-only=1") == {"status": "ok"}
    status, body, _ = await probe.ask("/healthz?stream=S")
    error = '"account" must not be empty when checking stream health'
    assert (status, body) == (400, {"status": "error", "error": error})
    status, body, _ = await probe.ask("/healthz?consumer=C&details=1")
    error = '"stream" must not be empty when checking consumer health'
    assert (status, body) == (
        400,
        {"status": "error", "errors": [{"type": "BAD_REQUEST", "error": error}]},
    )


REFUSED = {
    "/connz?sort=zzz": "invalid sorting option: zzz",
    "/connz?sort=stop": "sort by stop only valid on closed connections",
    "/connz?sort=reason&state=any": "sort by reason only valid on closed connections",
    "/connz?state=bad": "Error decoding state for bad",
    "/connz?limit=a": "Error decoding int for 'limit': strconv.Atoi: parsing \"a\": invalid syntax",
    "/subsz?subs=detail": "Error decoding boolean for 'subs': strconv.ParseBool: "
    'parsing "detail": invalid syntax',
    "/subsz?test=a.*": "invalid test subject, must be valid publish subject: a.*",
    "/healthz?details=x": "Error decoding boolean for 'details': strconv.ParseBool: "
    'parsing "x": invalid syntax',
}


@pytest.mark.parametrize("path", REFUSED)
async def test_a_bad_parameter_is_refused_in_plain_text(probe: Probe, path: str) -> None:
    status, body, headers = await probe.ask(path)
    assert (status, body) == (400, REFUSED[path])
    assert headers["Content-Type"].startswith("text/plain")


async def test_json_is_indented_and_open_to_other_origins(probe: Probe) -> None:
    async with probe.client("<b>") as client:
        await client.subscribe("x.>")
        await client.flush()
        async with ClientSession() as session:
            url = probe._url + "/connz?subs=1"
            async with session.get(url) as response:
                text = await response.text()
                assert response.headers["Access-Control-Allow-Origin"] == "*"
                assert "Server" not in response.headers
    assert text.startswith('{\n  "server_id": "')
    assert '"x.\\u003e"' in text  # no browser can take it for markup
    assert "\\u003cb\\u003e" in text


async def test_the_index_links_to_what_is_there(probe: Probe) -> None:
    status, body, headers = await probe.ask("/")
    assert status == 200
    assert headers["Content-Type"].startswith("text/html")
    paths = re.findall(r'href="\./([^"]+)"', body)
    assert len(paths) == 13
    for path in paths:
        assert (await probe.ask(f"/{path}"))[0] == (404 if path == "raftz" else 200)


async def test_unknown_paths(probe: Probe) -> None:
    for path in ("/nowhere", "/varz/", "/varz/x"):
        status, body, _ = await probe.ask(path)
        assert (status, body) == (404, "404 page not found\n")


@pytest.mark.parametrize("base", ["/nats", "nats", "/nats/"])
async def test_a_base_path(base: str) -> None:
    async with probing(http_base_path=base) as probe:
        assert (await probe.get("/nats/varz"))["http_base_path"] == base
        assert (await probe.ask("/nats"))[0] == 200
        assert (await probe.ask("/varz"))[0] == 404


async def test_a_port_in_use_is_one_line() -> None:
    async with probing() as probe:
        port = int(probe._url.rpartition(":")[2])
        async with Server(host="127.0.0.1", port=-1) as other:
            taken = Server(host="127.0.0.1", port=other.client_port, http_port=port)
            with pytest.raises(ListenError) as caught:
                http_server.start(taken)
    assert str(caught.value) == (
        "Can't start monitoring: can't listen to the monitor port: "
        f"listen tcp 127.0.0.1:{port}: bind: address already in use"
    )


async def test_stopping_at_once_leaves_nothing() -> None:
    async with Server(host="127.0.0.1", port=-1) as server:
        watcher = http_server.start(server)
        await watcher.stop()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", watcher.port)


# ---- paths


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("//varz", "/varz"),
        ("/./varz?a=%20b", "/varz?a=%20b"),
        ("/connz/../", "/"),
        ("//evil.example/..", "/"),
        ("//evil.example", "/evil.example"),
        ("/\\evil.example//", "/%5Cevil.example/"),
        ("/a/../%0d%0aX:y", "/%0d%0aX:y"),
    ],
)
async def test_unclean_paths_are_redirected_within_the_server(path: str, where: str) -> None:
    async with probing() as probe:
        reader, writer = await asyncio.open_connection("127.0.0.1", probe.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        head, _, _ = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
    lines = head.decode().split("\r\n")
    assert lines[0].split()[1] == "307"
    assert f"Location: {where}" in lines
    assert not any(line.startswith("X:") for line in lines)
