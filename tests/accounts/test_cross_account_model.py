"""Random accounts, permissions, exports, imports, mappings: every delivery is one of the model's.

Nothing passes that the model (model.py) forbids, nothing is missing, each refusal is told, and a
response reaches only those who listen on the requestor's reply subject in the requestor's account.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from natsd.accounts.import_rules import Activation
from tests.accounts.model import Delivery, Model, Sub, User, activation
from tests.accounts.shared import Got, Member, Place, serving

NAMES = ("A", "B", "C")
CLIENTS = {"a": "A", "a2": "A", "b": "B", "b2": "B", "c": "C", "c2": "C"}

LITERALS = ["a.b", "a.a", "b.a", "a.b.b", "a.B.a", "s.a", "s.a.b", "s.B.a"]
STREAMS = ["a.>", "a.*", "a.b", "a.*.>", "a.B.>", "b.*"]
SERVICES = ["s.>", "s.*", "s.a", "s.*.*", "s.B.*"]
PATTERNS = [">", "a.>", "a.*", "*.b", "x.>", "x.a.*", "x.*.b.>", "s.>", "s.*.a", "y.*.*", "in.>"]


FIRST_PATTERNS = {"a": "s.>", "a2": "*.*", "b": "a.>", "b2": "x.>", "c": "y.>", "c2": ">"}


@st.composite
def exports(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return exports with different subjects."""
    found = []
    for kind, subjects in (("stream", STREAMS), ("service", SERVICES)):
        some = st.lists(st.sampled_from(subjects), min_size=1, max_size=4, unique=True)
        for subject in [subjects[0], *draw(some)[:3]]:
            if any(kind in each and each[kind] == subject for each in found):
                continue
            export: dict[str, Any] = {kind: subject}
            right = draw(st.sampled_from(["public", "public", "private", "position", "token"]))
            if right == "token":
                export["token_required"] = True
            elif right == "private":
                export["accounts"] = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=2))
            elif right == "position" and subject.split(".")[1] == "*":
                export["account_token_position"] = 2
            found.append(export)
    return found


@st.composite
def imports(draw: st.DrawFn, importer: str) -> list[dict[str, Any]]:
    """Return imports from accounts earlier in the alphabet, so that there is no circle."""
    earlier = NAMES[: NAMES.index(importer)]
    found: dict[Any, dict[str, Any]] = {}
    for _ in range(draw(st.integers(2, 5)) if earlier else 0):
        kind = draw(st.sampled_from(["stream", "service"]))
        subject = draw(st.sampled_from(STREAMS if kind == "stream" else SERVICES))
        given: dict[str, Any] = {
            kind: {"account": draw(st.sampled_from(earlier)), "subject": subject}
        }
        stars = subject.split(".").count("*")
        order = draw(st.permutations(range(1, stars + 1)))
        tail = [">"] if subject.endswith(">") else []
        to = ".".join(
            ["y" if kind == "stream" else "s", *[f"${number}" for number in order], *tail]
        )
        whose = draw(st.sampled_from([importer, importer, importer, "A", None]))
        if whose is not None:
            given["token"] = activation(whose)
        form = draw(st.sampled_from(["same", "prefix", "to"]))
        if form == "to" and (stars or tail):
            given["to"] = to
        elif form == "prefix" and kind == "stream":
            given["prefix"] = "x"
        if kind == "service":
            local = given.get("to", subject)
            key: Any = (kind, given[kind]["account"], local.replace("$1", "*").replace("$2", "*"))
        else:
            key = (kind, given[kind]["account"], subject)
        found.setdefault(key, given)
    return list(found.values())


@st.composite
def accounts(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """Return the settings of an account."""
    mappings = draw(
        st.dictionaries(
            st.sampled_from(["a.b", "a.a", "s.a"]),
            st.sampled_from(["a.m", "b.a", "s.a.b"]),
            max_size=1,
        )
    )
    if draw(st.booleans()):
        mappings["b.*"] = "a.$1"
    return {
        "exports": draw(exports()),
        "imports": draw(imports(name)),
        **({"mappings": mappings} if mappings else {}),
    }


SUBJECTS = ["a.>", "a.*", "a.b", "*.b", "b.*", "x.>", "x.a.*", "y.>", "s.>", "s.a", "s.*.a"]
QUEUED = ["a.> q.*", "a.b q.1", "x.> q.1", "s.> q.2", "> q.2"]


@st.composite
def permissions(draw: st.DrawFn) -> dict[str, Any]:
    """Return permissions, with which clients may always subscribe to their reply subjects."""
    found: dict[str, Any] = {}
    publish, subscribe = (
        {
            name: draw(st.lists(st.sampled_from(rules), min_size=1, max_size=4, unique=True))
            for name in ("allow", "deny")
            if draw(st.booleans())
        }
        for rules in (SUBJECTS, SUBJECTS + QUEUED)
    )
    if "allow" in subscribe:
        subscribe["allow"].append("in.*")
    if publish:
        found["publish"] = publish
    if subscribe:
        found["subscribe"] = subscribe
    if draw(st.booleans()):
        found["allow_responses"] = {"max": draw(st.integers(1, 3)), "expires": "1h"}
    return found


# None: a user has the permissions of its account, an account has none.
PERMISSIONS = st.one_of(st.none(), st.just({}), permissions())
USERS = st.fixed_dictionaries(dict.fromkeys([*CLIENTS, *NAMES], PERMISSIONS))
QUEUES = ["", "q.1", "q.2", "q.3", "r"]


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("subscribe"),
            st.sampled_from(sorted(CLIENTS)),
            st.sampled_from(PATTERNS),
            st.sampled_from(QUEUES),
        ),
        st.tuples(st.just("unsubscribe"), st.integers(0, 20)),
        st.tuples(st.just("publish"), st.sampled_from(sorted(CLIENTS)), st.sampled_from(LITERALS)),
        st.tuples(st.just("request"), st.sampled_from(sorted(CLIENTS)), st.sampled_from(LITERALS)),
        st.sampled_from(NAMES).flatmap(
            lambda name: st.tuples(st.just("configure"), st.just(name), accounts(name))
        ),
    ),
    min_size=4,
    max_size=14,
)


class Run:
    """One history, on a server and on the model."""

    def __init__(
        self,
        place: Place,
        given: dict[str, dict[str, Any]],
        permissions: dict[str, dict[str, Any] | None],
    ) -> None:
        self.place = place
        users = {
            client: User(first_given(permissions[client], permissions[name]))
            for client, name in CLIENTS.items()
        }
        self.model = Model(given, users, silent={"a2"})
        self.clients: dict[str, Member] = {
            client: place.join(client, echo=client not in self.model.silent, **{"pass": "-"})
            for client in CLIENTS
        }
        self.count = 0
        self.has_refused_answers = False
        for client in CLIENTS:
            self.subscribe(client, FIRST_PATTERNS[client])

    def do(self, step: tuple[Any, ...]) -> None:
        getattr(self, step[0])(*step[1:])

    def subscribe(self, client: str, pattern: str, queue: str = "") -> None:
        """Subscribe; a queue group has one member in all accounts: imports join groups."""
        if queue and queue in [sub.queue for sub in self.model.subs]:
            return
        self.count += 1
        self.clients[client].send(f"SUB {pattern} {queue} {self.count}\r\n".encode())
        frames = self.clients[client].sync()
        may = self.model.users[client].may_subscribe(pattern, queue)
        assert was_refused(frames, "Subscription") is not may, (client, pattern, queue)
        if may:
            self.model.subs.append(Sub(CLIENTS[client], client, str(self.count), pattern, queue))

    def unsubscribe(self, index: int) -> None:
        if index < len(self.model.subs):
            sub = self.model.subs.pop(index)
            self.clients[sub.client].send(b"UNSUB %b\r\n" % sub.sid.encode())
            self.clients[sub.client].sync()

    def configure(self, name: str, given: dict[str, Any]) -> None:
        self.place.configure(**{name: given})
        self.model.accounts[name] = given

    def publish(self, client: str, subject: str) -> None:
        self.clients[client].pub(subject)
        expected = self.permitted(client, subject)
        deliveries, _ = self.deliveries(client, is_refused=expected is None)
        assert sorted(deliveries) == (expected or []), (client, subject)

    def permitted(self, client: str, subject: str) -> list[Delivery] | None:
        """Return the deliveries of a message; None: the client may not publish it."""
        account = CLIENTS[client]
        if not self.model.users[client].may_publish(self.model.mapped(account, subject)):
            return None
        return self.model.publish(account, client, subject)

    def request(self, client: str, subject: str) -> None:
        """Send a request; the first recipient of each reply subject answers twice.

        A request that went on through two accounts has a reply subject in each, which lead to the
        same one of the requestor: one answer uses them up.
        """
        account = CLIENTS[client]
        self.subscribe(client, inbox := f"in.{self.count}")
        self.clients[client].request(subject, inbox)
        expected = self.permitted(client, subject)
        seen, messages = self.deliveries(client, is_refused=expected is None)
        refusals = [each for each in messages if each[1].headers.startswith("NATS/1.0 503")]
        assert bool(refusals) is (expected == [])
        if refusals:
            assert [each[0] for each in refusals] == [client]
            return
        assert sorted(seen) == (expected or [])
        first = {message.reply: who for who, message in reversed(messages)}
        is_first = True
        for reply, responder in first.items():
            if reply == inbox:  # in the account, or through a stream import: there it is a name
                self.publish(responder, inbox)
                continue
            assert is_reply(reply)
            answer = sorted(self.model.local(account, responder, inbox))
            may_answer, deliveries = self.answered(responder, reply)
            if may_answer:
                assert deliveries in ([answer] if is_first else [answer, []])
                is_first = False
                _, deliveries = self.answered(responder, reply)
            else:
                self.has_refused_answers = True
            assert deliveries == []

    def answered(self, responder: str, reply: str) -> tuple[bool, list[Delivery]]:
        """Answer a request, if that is permitted; return whether it is, and the deliveries.

        Deliveries of reply subjects on the way are left out.
        """
        may_answer = self.model.users[responder].may_publish(reply)
        self.clients[responder].pub(reply, b"answer")
        seen, _ = self.deliveries(responder, is_refused=not may_answer)
        return may_answer, sorted(each for each in seen if not is_reply(each[2]))

    def deliveries(
        self, publisher: str, *, is_refused: bool
    ) -> tuple[list[Delivery], list[tuple[str, Got]]]:
        """Return what the clients received since the last call; check whether one was refused."""
        names = [publisher, *(name for name in self.clients if name != publisher)]
        frames = {name: self.clients[name].sync() for name in names}
        for name in names:
            assert was_refused(frames[name], "Publish") is (is_refused and name == publisher)
        messages = [
            (name, Got(frame))
            for name in names
            for frame in frames[name]
            if frame.startswith((b"MSG ", b"HMSG "))
        ]
        for name, message in messages:
            if message.reply:
                self.model.users[name].received(message.reply)
        queued = {sub.sid for sub in self.model.subs if sub.queue}
        return [
            (
                name,
                each.sid,
                each.subject if is_reply(each.subject) or each.sid not in queued else "",
            )
            for name, each in messages
        ], messages


def is_reply(subject: str) -> bool:
    """Return whether a subject is one that the server made for the response to a request."""
    return subject.startswith("_R_.")


def was_refused(frames: list[bytes], what: str) -> bool:
    """Return whether a client was told that it must not publish or subscribe."""
    start = f"-ERR 'Permissions Violation for {what} to".encode()
    return any(frame.startswith(start) for frame in frames)


def first_given(own: dict[str, Any] | None, of_account: dict[str, Any] | None) -> dict[str, Any]:
    """Return the permissions of a user; without its own, it has those of its account."""
    return own if own is not None else of_account or {}


def check_activation(_exporter: str, importer: str, given: Any, _export: Any) -> Activation | None:
    return Activation() if given.token == activation(importer) else None


def users_of(permissions: dict[str, dict[str, Any] | None]) -> dict[str, dict[str, Any]]:
    """Return accounts with their users and without exports and imports."""

    def named(name: str, given: dict[str, Any] | None) -> dict[str, Any]:
        return {} if given is None else {name: given}

    return {
        name: {
            "users": [
                {"user": client, "password": "-", **named("permissions", permissions[client])}
                for client, account in CLIENTS.items()
                if account == name
            ],
            **named("default_permissions", permissions[name]),
        }
        for name in NAMES
    }


@settings(
    max_examples=60,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.tuples(*map(accounts, NAMES)), USERS, STEPS)
def test_every_delivery_is_one_of_the_model(
    given: tuple[dict[str, Any], ...],
    permissions: dict[str, dict[str, Any] | None],
    steps: list[tuple[Any, ...]],
) -> None:
    made = dict(zip(NAMES, given, strict=True))
    begin = {**users_of(permissions), "Z": {"mappings": {"x": "y"}}}
    with (
        patch("natsd.server.sharing.no_activation", check_activation),
        serving(authenticator=None, **begin) as place,
    ):
        place.configure(**made)
        run = Run(place, made, permissions)
        for step in steps:
            run.do(step)
        for client in CLIENTS:
            for subject in LITERALS:
                run.publish(client, subject)
        for client in ("b", "c"):
            for subject in ("s.a", "s.a.b", "s.B.a"):
                run.request(client, subject)
        is_all_over = all(place.awaited(name) == 0 for name in NAMES)
        assert is_all_over or run.has_refused_answers  # which the server goes on waiting for
