"""A cluster, as simply as it can be said: who gets which message, on which server.

The accounts are those of tests/accounts/model.py: mappings, and imports, which are followed where
the message is published. In each account that it enters there

- each plain subscription of any server gets it once;
- of each queue group one member gets it: one on the publisher's server, if one there may take it.
  Otherwise the servers with members are equal, and the one that is drawn has the choice. If none of
  its members may take it, that server draws another one, which is the last.

A server gets the messages of another one only for subjects that it may import, and that the other
one may export. Rules are over the first token, and so are patterns, if there are rules: which of
them includes the other is then no question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from natsd.core.routing import PermissionRules
from tests.accounts.model import Model, Sub, back, bound, local_name, renamed

Delivery = tuple[str, str]
"""Client and subscription id."""


@dataclass
class Group:
    """The members of a queue group among which one message is decided."""

    takers: set[Delivery] = field(default_factory=set)
    """One of these gets it."""
    may_be_lost: bool = False
    """Nobody gets it, if the lot falls on servers whose members may not take it."""
    is_served: bool = False
    """A member of the publisher's server, or another server, takes it."""


@dataclass
class Expected:
    """The deliveries of one message."""

    plain: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Client, subscription id, subject."""
    groups: list[Group] = field(default_factory=list)
    is_taken: bool = False
    """Whether a subscription, or another server, took the message: there is no 503."""


@dataclass
class Hit:
    """A subscription that matches a message in the account that it entered."""

    sub: Sub
    subject: str
    """With which the message is delivered."""


class ClusterModel(Model):
    """Accounts, users and subscriptions of a cluster."""

    def __init__(self, accounts: dict[str, dict[str, Any]], users: dict[str, Any]) -> None:
        super().__init__(accounts, users)
        self.homes: dict[str, int] = {}  # client -> its server
        self.rules: dict[int, PermissionRules | None] = {}  # of a server: what it imports, exports

    def deliveries(self, client: str, account: str, subject: str) -> Expected:
        """Return the deliveries of what a client publishes."""
        expected = Expected()
        self._pass(expected, self.homes[client], client, account, self.mapped(account, subject), ())
        return expected

    def answer(self, home: int, client: str, account: str, inbox: str) -> Expected:
        """Return the deliveries of a response, which came to the server of the requestor."""
        expected = Expected()
        hits = [Hit(sub, inbox) for sub in self._matching(account, inbox)]
        self._decide(expected, home, client, inbox, hits)
        return expected

    def _pass(
        self,
        expected: Expected,
        home: int,
        client: str,
        account: str,
        subject: str,
        passed: tuple[Any, ...],
    ) -> None:
        """Add the deliveries of a message that enters an account on a server."""
        hits = [Hit(sub, subject) for sub in self._matching(account, subject)]
        if not passed:
            hits += self._imported(account, subject)
        self._decide(expected, home, client, subject, hits)
        for given, export in self._in_force(account, "service"):
            exporter = given["service"]["account"]
            to = back(given["service"]["subject"], local_name(given), subject)
            if to is not None and (exporter, export) not in passed:
                to = self.mapped(exporter, to)
                self._pass(expected, home, client, exporter, to, (*passed, (exporter, export)))

    def _matching(self, account: str, subject: str) -> Iterator[Sub]:
        for sub in self.subs:
            if sub.account == account and bound(sub.pattern, subject) is not None:
                yield sub

    def _imported(self, account: str, subject: str) -> Iterator[Hit]:
        """Yield the subscriptions of other accounts that import a stream of this one."""
        for importer in self.accounts:
            for given, _ in self._in_force(importer, "stream"):
                local = renamed(given["stream"]["subject"], local_name(given), subject)
                if given["stream"]["account"] == account and local is not None:
                    for sub in self._matching(importer, local):
                        yield Hit(sub, local)

    def _decide(
        self, expected: Expected, home: int, client: str, subject: str, hits: list[Hit]
    ) -> None:
        """Add the deliveries among subscriptions of one account."""
        groups: dict[str, dict[int, set[Delivery]]] = {}  # by server, the members that may take it
        for hit in hits:
            sub, at = hit.sub, self.homes[hit.sub.client]
            may = self.users[sub.client].may_receive(hit.subject, sub.queue)
            may = may and not (sub.client == client and client in self.silent)
            if sub.queue:
                takers = groups.setdefault(sub.queue, {}).setdefault(at, set())
                takers |= {(sub.client, sub.sid)} if may else set()
            elif at == home or self._knows(home, at, subject):
                expected.plain[sub.client, sub.sid, hit.subject] += may
                expected.is_taken |= may or at != home
        for servers in groups.values():
            group = self._drawn(home, subject, servers)
            expected.groups.append(group)
            expected.is_taken |= group.is_served

    def _drawn(self, home: int, subject: str, servers: dict[int, set[Delivery]]) -> Group:
        """Return who of a group may get a message."""
        if servers.get(home):
            return Group(servers[home], is_served=True)
        group = Group()
        for first in servers.keys() - {home}:
            if not self._knows(home, first, subject):
                continue
            group.is_served = True
            group.takers |= servers[first]
            if not servers[first]:
                others = {
                    other
                    for other in servers.keys() - {home, first}
                    if self._knows(first, other, subject)
                }
                group.takers = group.takers.union(*(servers[other] for other in others))
                group.may_be_lost |= not others or any(not servers[other] for other in others)
        return group

    def _knows(self, here: int, there: int, subject: str) -> bool:
        """Return whether a server may know of interest in a subject on another one."""
        imports, exports = self.rules.get(there), self.rules.get(here)
        return (imports is None or imports.may_publish(subject)) and (
            exports is None or exports.may_subscribe(subject)
        )
