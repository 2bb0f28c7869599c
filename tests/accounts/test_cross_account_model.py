"""Random accounts, exports, imports, mappings and changes: every delivery is one of the model's.

Nothing passes that the model (model.py) forbids, nothing is missing, and a response reaches only
those who listen on the requestor's reply subject in the requestor's account.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.accounts.model import Delivery, Model, Sub
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
            right = draw(st.sampled_from(["public", "public", "private", "position"]))
            if right == "private":
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


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("subscribe"), st.sampled_from(sorted(CLIENTS)), st.sampled_from(PATTERNS)
        ),
        st.tuples(st.just("unsubscribe"), st.integers(0, 20), st.none()),
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

    def __init__(self, place: Place, given: dict[str, dict[str, Any]]) -> None:
        self.place = place
        self.model = Model(given, silent={"a2"})
        self.clients: dict[str, Member] = {
            client: place.join(name, echo=client not in self.model.silent)
            for client, name in CLIENTS.items()
        }
        self.count = 0
        for client in CLIENTS:
            self.subscribe(client, FIRST_PATTERNS[client])

    def do(self, step: tuple[str, Any, Any]) -> None:
        getattr(self, step[0])(*step[1:])

    def subscribe(self, client: str, pattern: str) -> None:
        self.count += 1
        self.clients[client].subscribe(pattern, self.count)
        self.model.subs.append(Sub(CLIENTS[client], client, str(self.count), pattern))

    def unsubscribe(self, index: int, _none: None) -> None:
        if index < len(self.model.subs):
            sub = self.model.subs.pop(index)
            self.clients[sub.client].send(b"UNSUB %b\r\n" % sub.sid.encode())
            self.clients[sub.client].sync()

    def configure(self, name: str, given: dict[str, Any]) -> None:
        self.place.configure(**{name: given})
        self.model.accounts[name] = given

    def publish(self, client: str, subject: str) -> None:
        self.clients[client].pub(subject)
        expected = self.model.publish(CLIENTS[client], client, subject)
        assert sorted(self.deliveries(client)[0]) == expected, (client, subject)

    def request(self, client: str, subject: str) -> None:
        """Send a request; the first recipient of each reply subject answers twice.

        A request that went on through two accounts has a reply subject in each, which lead to the
        same one of the requestor: one answer uses them up.
        """
        account = CLIENTS[client]
        self.subscribe(client, inbox := f"in.{self.count}")
        self.clients[client].request(subject, inbox)
        expected = self.model.publish(account, client, subject)
        seen, messages = self.deliveries(client)
        refusals = [each for each in messages if each[1].headers.startswith("NATS/1.0 503")]
        assert bool(refusals) is (not expected)
        if refusals:
            assert [each[0] for each in refusals] == [client]
            return
        assert sorted(seen) == expected
        first = {message.reply: who for who, message in reversed(messages)}
        is_first = True
        for reply, responder in first.items():
            if reply == inbox:  # in the account, or through a stream import: there it is a name
                self.publish(responder, inbox)
                continue
            assert reply.startswith("_R_.")
            answer = sorted(self.model.local(account, responder, inbox))
            assert self.answered(responder, reply) in ([answer] if is_first else [answer, []])
            assert self.answered(responder, reply) == []
            is_first = False

    def answered(self, responder: str, reply: str) -> list[Delivery]:
        """Answer a request; return the deliveries, without those of reply subjects on the way."""
        self.clients[responder].pub(reply, b"answer")
        seen, _ = self.deliveries(responder)
        return sorted(each for each in seen if not each[2].startswith("_R_."))

    def deliveries(self, publisher: str) -> tuple[list[Delivery], list[tuple[str, Got]]]:
        """Return what the clients received since the last call."""
        names = [publisher, *(name for name in self.clients if name != publisher)]
        messages = [
            (name, Got(frame))
            for name in names
            for frame in self.clients[name].sync()
            if frame.startswith((b"MSG ", b"HMSG "))
        ]
        return [(name, each.sid, each.subject) for name, each in messages], messages


@settings(
    max_examples=30,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.tuples(*map(accounts, NAMES)), STEPS)
def test_every_delivery_is_one_of_the_model(
    given: tuple[dict[str, Any], ...], steps: list[tuple[str, Any, Any]]
) -> None:
    made = dict(zip(NAMES, given, strict=True))
    with serving(A={}, B={}, C={}, Z={"mappings": {"x": "y"}}) as place:
        place.configure(**made)
        run = Run(place, made)
        for step in steps:
            run.do(step)
        for name in CLIENTS:
            for subject in LITERALS:
                run.publish(name, subject)
        for name in ("b", "c"):
            for subject in ("s.a", "s.a.b", "s.B.a"):
                run.request(name, subject)
        assert all(place.awaited(name) == 0 for name in NAMES)
