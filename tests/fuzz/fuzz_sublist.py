"""SubList: a history of inserts, removals and matches, against the readable model.

Input: lines; the first byte is the operation, the rest its argument.

    +subject [queue [weight]]   insert        ?subject   match, and hold the result
    -index                      remove        <pattern   reverse match
    =index index ...            remove them   ~index     a remote group has another weight
    !                           clear         #          another SubList, without a cache

Held results must not change; at the end no object may be left alive.
"""

from collections.abc import Callable

from natsd.core.routing import InvalidSubject, SubList, Subscription, live_counts
from tests.core import naive

MODULES = [
    "natsd.core.routing",
    "natsd.core.routing",
    "natsd.core.routing",
    "natsd.core.routing",
    "natsd.core.routing",
    "natsd.core.routing",
    "natsd.core.routing",
]
SEEDS = [
    b"+foo.bar\n+foo.*\n+>\n?foo.bar\n-0\n?foo.bar\n-1\n-2\n?foo.bar",
    b"+foo q1\n+foo q1\n+foo q2 3\n+* q1\n?foo\n~2\n?foo\n=0 1 2 3\n?foo",
    b"?a\n+a\n?a\n+a.>\n?a.b\n+a.*\n?a.b\n<a.*\n<>\n!\n?a.b\n+a",
    b"#\n+a.b.c.d.e.f.g\n+a.*.c.*.e.*.g\n?a.b.c.d.e.f.g\n<*.b.>\n-0\n-0\n-9",
    b"+a..b\n+.a\n+a.\n+>.a\n+a.>.b\n+\n?a..b\n?",
    b"".join(b"+t%d.x\n?t%d.x\n" % (n, n) for n in range(40)) + b"+*.x\n?t7.x\n=1 2 3 4 5 6 7 8",
]
SUBSCRIPTIONS_MAX = 200


class History:
    """One SubList and its model, to which every line is applied."""

    def __init__(self) -> None:
        self.real = SubList()
        self.model = naive.NaiveSubList()
        self.subs: list[Subscription] = []
        self.held: list[tuple[object, naive.Answer]] = []

    def insert(self, text: str) -> None:
        subject, queue, weight = [*text.split(" "), "", ""][:3]
        sub = Subscription(subject, queue or None, weight=int(weight) if weight.isdigit() else 1)
        try:
            inserted = self.real.insert(sub)
        except InvalidSubject:
            assert not naive.is_valid(subject)
            return
        assert inserted
        assert all(naive.tokens(subject))
        assert ">" not in naive.tokens(subject)[:-1]
        self.model.insert(sub)
        self.subs.append(sub)

    def chosen(self, text: str) -> list[Subscription]:
        indices = [int(word) for word in text.split(" ") if word.isascii() and word.isdigit()]
        return [self.subs[index] for index in indices if index < len(self.subs)]

    def remove(self, text: str) -> None:
        for sub in self.chosen(text)[:1]:
            assert self.real.remove(sub) == self.model.remove(sub)

    def remove_batch(self, text: str) -> None:
        batch = self.chosen(text)
        assert self.real.remove_batch(batch) == sum(map(self.model.remove, batch))

    def reweigh(self, text: str) -> None:
        for sub in self.chosen(text)[:1]:
            self.real.update_weight(sub, (sub.weight + 2) % 5)

    def match(self, text: str) -> None:
        result, answer = self.real.match(text), self.model.match(text)
        assert naive.seen(result) == answer
        assert self.real.has_interest(text) or not len(result)
        assert self.real.num_interest(text)[0] == answer.plain.total()
        self.held.append((result, answer))

    def reverse_match(self, text: str) -> None:
        if naive.is_valid(text):
            assert naive.seen(self.real.reverse_match(text)) == self.model.reverse_match(text)

    def clear(self, text: str) -> None:
        self.real.clear()
        self.model.subs.clear()

    def without_cache(self, text: str) -> None:
        self.clear(text)
        self.real = SubList(cache=False)

    def end(self) -> None:
        assert len(self.real) == len(self.model.subs)
        assert set(self.real.subscriptions()) == set(self.model.subs)
        for result, answer in self.held:
            assert naive.seen(result) == answer


ACTIONS: dict[str, Callable[[History, str], None]] = {
    "+": History.insert,
    "-": History.remove,
    "=": History.remove_batch,
    "?": History.match,
    "<": History.reverse_match,
    "~": History.reweigh,
    "!": History.clear,
    "#": History.without_cache,
}


def check(data: bytes) -> None:
    before = live_counts()
    run(data.decode("utf-8", "surrogateescape").split("\n"))
    assert live_counts() == before


def run(lines: list[str]) -> None:
    history = History()
    for line in lines:
        action = ACTIONS.get(line[:1])
        if action is not None and len(history.subs) < SUBSCRIPTIONS_MAX:
            action(history, line[1:])
    history.end()
