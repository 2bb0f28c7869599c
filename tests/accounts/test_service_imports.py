"""Services of other accounts: requests, replies, and the header that names the requestor."""

from __future__ import annotations

import json
import re
from email.parser import BytesParser
from email.policy import compat32
from typing import Any

import pytest

from tests.accounts.shared import Got, account, service, serving

AWAITED_MAX = 65_536
REPLY = re.compile(r"_R_\.[0-9A-Za-z]{6}\.[0-9A-Za-z]{11}")


def info_of(message: Got) -> dict[str, Any]:
    status, line, *_ = message.headers.split("\r\n")
    assert status.startswith("NATS/1.0")
    info: dict[str, Any] = json.loads(line.removeprefix("Nats-Request-Info: "))
    return info


def test_a_request_is_answered_through_a_subject_that_nobody_can_guess() -> None:
    with serving(A=account(exports=[{"service": "help"}]), B=account(service("A", "help"))) as s:
        responder, requestor = s.join("A"), s.join("B")
        responder.subscribe("help")
        requestor.subscribe("inbox")
        requestor.request("help", "inbox", b"me")
        request = responder.got()
        assert (request.subject, request.data) == ("help", b"me")
        assert REPLY.fullmatch(request.reply)
        responder.pub(request.reply, b"yes")
        assert requestor.read_message() == b"MSG inbox 1 3\r\nyes\r\n"
        responder.pub(request.reply, b"again")
        responder.sync()
        assert requestor.sync() == []
        assert (s.pending("A"), s.awaited("B")) == (0, 0)


def test_subjects_with_wildcards_are_mapped() -> None:
    shared = service("A", "svc.*.*", to="my.$2.$1")
    with serving(A=account(exports=[{"service": "svc.>"}]), B=account(shared)) as s:
        responder, requestor = s.join("A"), s.join("B")
        responder.subscribe("svc.>")
        requestor.pub("my.1.2")
        assert responder.got().subject == "svc.2.1"


def test_two_wildcards_may_just_change_places() -> None:
    shared = service("A", "svc.*.*", to="svc.$2.$1")
    with serving(A=account(exports=[{"service": "svc.>"}]), B=account(shared)) as s:
        responder, requestor = s.join("A"), s.join("B")
        responder.subscribe("svc.>")
        requestor.pub("svc.1.2")
        assert responder.got().subject == "svc.2.1"
        s.configure(B=account(service("A", "svc.*.*", to="svc.$1.$2")))
        requestor.pub("svc.1.2")
        assert responder.got().subject == "svc.1.2"


def test_a_service_under_its_own_name_keeps_the_published_subject() -> None:
    with serving(A=account(exports=[{"service": "svc.>"}]), B=account(service("A", "svc.>"))) as s:
        responder, requestor = s.join("A"), s.join("B")
        responder.subscribe("svc.*.x")
        requestor.pub("svc.1.x")
        assert responder.got().subject == "svc.1.x"


def test_nobody_listens_so_the_requestor_gets_503() -> None:
    with serving(A=account(exports=[{"service": "help"}]), B=account(service("A", "help"))) as s:
        requestor = s.join("B")
        requestor.subscribe("inbox")
        requestor.request("help", "inbox")
        refusal = requestor.got()
        assert refusal.headers == "NATS/1.0 503\r\nNats-Subject: help\r\n\r\n"
        assert (s.pending("A"), s.awaited("B")) == (0, 0)


def test_the_header_tells_account_and_round_trip_and_more_if_shared() -> None:
    exports = [{"service": "a"}, {"service": "b"}]
    imports = [service("A", "a"), service("A", "b", share=True)]
    with serving(A=account(exports=exports), B=account(*imports)) as s:
        responder, requestor = s.join("A"), s.join("B", name="me", lang="py", version="1")
        responder.subscribe("*")
        requestor.pub("a")
        info = info_of(responder.got())
        assert info.pop("rtt") > 0
        assert info == {"acc": "B"}
        requestor.pub("b")
        info = info_of(responder.got())
        assert list(info) == [
            *("start", "host", "id", "acc", "user", "name", "lang", "ver", "rtt", "server"),
            *("kind", "client_type"),
        ]
        assert (info["id"], info["user"], info["name"]) == (requestor.cid, "B", "me")


@pytest.mark.parametrize("size", [0, 10, 20_000])
def test_a_header_that_the_client_made_up_is_replaced(size: int) -> None:
    with serving(A=account(exports=[{"service": "a"}]), B=account(service("A", "a"))) as s:
        responder, requestor = s.join("A"), s.join("B")
        responder.subscribe("a")
        own = {"X": "1", "Nats-Request-Info": '{"acc":"A"}', "Y": "2"}
        requestor.publish("a", own, b"d" * size)
        request = responder.got()
        assert request.headers.startswith("NATS/1.0\r\nNats-Request-Info: {")
        assert request.headers.endswith("}\r\nX: 1\r\nY: 2\r\n\r\n")
        assert info_of(request)["acc"] == "B"
        assert request.data == b"d" * size


FORGED = '{"acc":"A","user":"root"}'
NAME = "Nats-Request-Info"


def values_in(block: bytes) -> list[str]:
    """Return the values that parsers of clients, and more lenient ones, find under the name."""
    found = []
    mail = BytesParser(policy=compat32).parsebytes(block[10:])  # nats.py
    found += [str(value) for name, value in mail.items() if name == NAME]
    text = block.decode(errors="replace")
    for end in ("\r\n", "\n", "\r", "\r\n|\r|\n"):  # nats.js and Java, nats.go, and what is left
        for fold in ("", "[ \t]+"):
            unfolded = re.sub(f"(?:{end}){fold}", " ", text) if fold else text
            for line in re.split(end, unfolded):
                name, colon, value = line.partition(":")
                if colon and name.strip().casefold() == NAME.casefold():
                    found.append(value)
    return found


@pytest.mark.parametrize(
    "block",
    [
        f"NATS/1.0\r\nNats-Request-Info: {FORGED}\r\n\r\n",
        f"NATS/1.0\r\nnats-request-info:{FORGED}\r\nX: 1\r\n\r\n",
        f"NATS/1.0\r\nX: 1\r\nNATS-REQUEST-INFO : {FORGED}\r\n\r\n",
        f"NATS/1.0\r\nX: 1\r\n \tNats-Request-Info\t:{FORGED}\r\n\r\n",
        f"NATS/1.0\nNats-Request-Info: {FORGED}\n\n",
        f"NATS/1.0\r\nX: 1\nNats-Request-Info: {FORGED}\r\n\r\n",
        f"NATS/1.0\r\nX: 1\rNats-Request-Info: {FORGED}\rY: 2\r\n\r\n",
        f"NATS/1.0\r\nX: 1\n\rNats-Request-Info: {FORGED}\r\n\r\n",
        f"NATS/1.0\r\nNats-Request-Info: x\r\n {FORGED}\r\n\t{FORGED}\r\nX: 1\r\n\r\n",
        f"NATS/1.0\r\n {FORGED}\r\nX: 1\r\n\r\n",
        f"NATS/1.0\r\n\t{FORGED}",
        f"NATS/1.0\r\nX: 1\r\n\x0bNats-Request-Info\x1c: {FORGED}\r\n\r\n",
        f"NATS/1.0\r\nNats-Request-Info\xa0: {FORGED}\r\n\u2003Nats-Request-Info: {FORGED}\r\n\r\n",
        f"NATS/1.0\r\nNats-Reque\u017ft-Info: {FORGED}\r\n\r\n",
        f"NATS/1.0\r\nNats-Request-Info: {FORGED}",
        f"NATS/1.0 503 Bad\r\nNats-Request-Info: {FORGED}\r\n\r\n",
        f"NATS/1.0Nats-Request-Info: {FORGED}\r\n\r\n",
        f"NATS/1.0xxNats-Request-Info: {FORGED}\r\n\r\n",
        f"xxxxxxxx\r\nNats-Request-Info: {FORGED}\r\n\r\n",
        f"NATS/1.0\r\nX: 1\r\n\r\nNats-Request-Info: {FORGED}\r\n\r\n",
        f"NATS/1.0\r\n\r\n\r\nNats-Request-Info: {FORGED}\r\n\r\n",
        f"NATS/1.0\r\nX: 1\r\nNats-Request-Info: {FORGED}\r\n",
        f"NATS/1.0\r\n\0Nats-Request-Info: {FORGED}\r\n\r\n",
    ],
)
def test_no_receiver_reads_an_imitation_of_the_header(block: str) -> None:
    with serving(A=account(exports=[{"service": "a"}]), B=account(service("A", "a"))) as s:
        responder, requestor = s.join("A"), s.join("B")
        responder.subscribe("a")
        headers = block.encode()
        requestor.send(b"HPUB a %d %d\r\n%bdata\r\n" % (len(headers), len(headers) + 4, headers))
        request = responder.got()
        assert request.data == b"data"
        assert info_of(request)["acc"] == "B"
        values = values_in(request.headers.encode())
        assert len(values) >= 5, "each parser finds the header"
        assert all('"acc":"B"' in value and "root" not in value for value in values)


def test_other_headers_pass_unchanged() -> None:
    block = b"NATS/1.0\r\nNats-Request-Infos: 1\r\nNats-Msg-Id:2\r\n folded\r\nnats-request\r\n\r\n"
    with serving(A=account(exports=[{"service": "a"}]), B=account(service("A", "a"))) as s:
        responder, requestor = s.join("A"), s.join("B")
        responder.subscribe("a")
        requestor.send(b"HPUB a %d %d\r\n%b\r\n" % (len(block), len(block), block))
        request = responder.got()
        status, own, rest = request.headers.encode().split(b"\r\n", 2)
        assert own.startswith(b"Nats-Request-Info: {")
        assert status + b"\r\n" + rest == block


def test_a_service_passes_through_three_accounts() -> None:
    with serving(
        A=account(exports=[{"service": "deep"}]),
        B=account(service("A", "deep", to="mid"), exports=[{"service": "mid"}]),
        C=account(service("B", "mid", to="top")),
    ) as s:
        responder, requestor = s.join("A"), s.join("C")
        responder.subscribe("deep")
        requestor.subscribe("inbox")
        requestor.request("top", "inbox")
        request = responder.got()
        info = info_of(request)
        assert (info["acc"], info["svc"]) == ("C", "B")
        responder.pub(request.reply, b"yes")
        assert requestor.got().data == b"yes"
        assert [s.pending(name) for name in "AB"] == [0, 0]


def test_an_account_that_asks_without_end_loses_only_its_own_replies() -> None:
    """Its oldest one goes for each new one; a stream of responses is as old as its last one."""
    exports = [{"service": "help"}, {"service": "many", "response_type": "stream"}]
    with serving(
        A=account(exports=exports),
        B=account(service("A", "help"), service("A", "many")),
        C=account(service("A", "help")),
    ) as s:
        responder, greedy, other = s.join("A"), s.join("B"), s.join("C")
        responder.subscribe("*")
        other.subscribe("inbox")
        greedy.subscribe("in.>")
        other.request("help", "inbox")
        of_other = responder.got().reply
        greedy.request("help", "in.first")
        first = responder.got().reply
        greedy.request("many", "in.many")
        many = responder.got().reply
        replies = []
        for start in range(0, AWAITED_MAX, 1024):
            requests = [b"PUB help in.%d 0\r\n\r\n" % n for n in range(start, start + 1024)]
            greedy.send(b"".join(requests))
            replies += [responder.got().reply for _ in requests]
            responder.pub(many, b"m")
            assert greedy.got().subject == "in.many"
        assert s.pending("A") == AWAITED_MAX + 1
        assert s.awaited("B") == AWAITED_MAX
        for late in (first, replies[0]):
            responder.pub(late)
        for awaited in (replies[1], replies[-1], many):
            responder.pub(awaited)
        answered = [greedy.got().subject for _ in range(3)]
        assert answered == ["in.1", f"in.{AWAITED_MAX - 1}", "in.many"]
        responder.pub(of_other, b"yes")
        assert other.got().data == b"yes"


def test_a_stream_of_responses_ends_with_an_empty_one() -> None:
    export = {"service": "many", "response_type": "chunked"}
    with serving(A=account(exports=[export]), B=account(service("A", "many"))) as s:
        responder, requestor = s.join("A"), s.join("B")
        responder.subscribe("many")
        requestor.subscribe("inbox")
        requestor.request("many", "inbox")
        reply = responder.got().reply
        for data in (b"1", b"2", b"", b"late"):
            responder.pub(reply, data)
        responder.sync()
        assert [Got(frame).data for frame in requestor.sync()] == [b"1", b"2", b""]
        assert s.pending("A") == 0


def test_responder_and_requestor_may_talk_on() -> None:
    export = {"service": "talk", "response_type": "stream"}
    with serving(A=account(exports=[export]), B=account(service("A", "talk"))) as s:
        responder, requestor = s.join("A"), s.join("B")
        responder.subscribe("talk")
        responder.subscribe("back", 2)
        requestor.subscribe("inbox")
        requestor.request("talk", "inbox")
        responder.request(responder.got().reply, "back", b"question")
        question = requestor.got()
        assert (question.subject, question.data) == ("inbox", b"question")
        assert REPLY.fullmatch(question.reply)
        requestor.pub(question.reply, b"answer")
        answer = responder.got()
        assert (answer.subject, answer.sid, answer.data) == ("back", "2", b"answer")


def test_a_reply_that_nobody_awaits_any_more_is_given_up() -> None:
    with serving(A=account(exports=[{"service": "a"}]), B=account(service("A", "a"))) as s:
        responder, requestor = s.join("A"), s.join("B")
        responder.subscribe("a")
        requestor.send(b"SUB in.1 1\r\nSUB in.* 2\r\nPUB a in.1 1\r\n?\r\nPUB a in.2 1\r\n?\r\n")
        requestor.sync()
        assert (s.pending("A"), s.awaited("B")) == (2, 2)
        requestor.send(b"UNSUB 1\r\n")
        requestor.sync()
        assert s.pending("A") == 2
        requestor.send(b"UNSUB 2\r\n")
        requestor.sync()
        assert (s.pending("A"), s.awaited("B")) == (0, 0)


def test_a_reply_is_given_up_after_the_threshold() -> None:
    export = {"service": "a", "threshold": "50ms"}
    with serving(A=account(exports=[export]), B=account(service("A", "a"))) as s:
        responder, requestor = s.join("A"), s.join("B")
        responder.subscribe("a")
        requestor.subscribe("inbox")
        requestor.request("a", "inbox")
        reply = responder.got().reply
        while s.pending("A"):
            responder.sync()
        responder.pub(reply, b"late")
        responder.sync()
        assert requestor.sync() == []


def test_queue_groups_and_echo_work_across_accounts() -> None:
    shared = service("A", "a", to="b")
    with serving(A=account(exports=[{"service": "a"}]), B=account(shared)) as s:
        members = [s.join("A") for _ in range(3)]
        for member in members:
            member.subscribe("a", queue="q")
        requestor = s.join("B")
        for _ in range(30):
            requestor.pub("b")
        requestor.sync()
        assert sum(len(member.sync()) for member in members) == 30


def test_acknowledgement_subjects_of_consumers_are_not_changed() -> None:
    with serving(A=account(exports=[{"service": "a"}]), B=account(service("A", "a"))) as s:
        responder = s.join("A")
        responder.subscribe("a")
        publisher = s.server.accounts["B"].publisher  # clients must not use such replies
        s.call(lambda: publisher.publish(b"a", b"x", b"$JS.ACK.S.C.1.1.1.1.0"))
        assert responder.got().reply == "$JS.ACK.S.C.1.1.1.1.0"


def test_clients_must_not_use_reserved_replies() -> None:
    with serving(A=account()) as s:
        member = s.join("A")
        member.request("a", "_R_.a.b")
        [error] = member.sync()
        assert error == b"-ERR 'Permissions Violation for Publish with Reply of \"_R_.a.b\"'\r\n"


def test_services_that_import_each_other_do_not_send_a_message_in_a_circle() -> None:
    with serving(
        A=account(service("B", "y"), exports=[{"service": "x"}], mappings={"x": "y"}),
        B=account(service("A", "x"), exports=[{"service": "y"}], mappings={"y": "x"}),
    ) as s:
        one, other = s.join("A"), s.join("B")
        one.subscribe("y")
        other.subscribe("x")
        other.pub("x", b"once")
        other.sync()
        assert len(one.sync()) == 1
