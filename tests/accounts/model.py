"""What accounts share, as simply as it can be said: who gets which message.

A publish is mapped by its account, and goes to the subscriptions there. Then each import is asked:
a stream import of another account, if the message was published in the exporting account itself; a
service import of the account, if the message has not been through the same export before.

A client's permissions decide over what it publishes, which is the mapped subject, over its
subscriptions, and over each message that is delivered to them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

Delivery = tuple[str, str, str]
"""Client, subscription id, subject; the subject is empty for members of queue groups."""


@dataclass
class Sub:
    account: str
    client: str
    sid: str
    pattern: str
    queue: str = ""


@dataclass
class User:
    """The permissions of a client, as a configuration has them."""

    permissions: dict[str, Any] = field(default_factory=dict)
    responses: dict[str, int] = field(default_factory=dict)
    """Messages that may still be published to the reply subject of a request."""

    def may_publish(self, subject: str) -> bool:
        """Return whether a message may be published; as a response, it is counted."""
        if self._rules_allow(subject):
            return True
        if not self.responses.get(subject):
            return False
        self.responses[subject] -= 1
        return True

    def received(self, reply: str) -> None:
        """Note a request that was delivered."""
        if "allow_responses" in self.permissions and not self._rules_allow(reply):
            self.responses[reply] = self.permissions["allow_responses"]["max"]

    def may_subscribe(self, pattern: str, queue: str) -> bool:
        rules = self.permissions.get("subscribe", {})
        allowed = [rule.split() for rule in rules.get("allow", [">"])]
        covering = [rule for rule in allowed if includes(rule[0], pattern)]
        of_queues = [rule for rule in covering if len(rule) == 2]
        if queue and of_queues:
            is_allowed = any(includes(rule[1], queue) for rule in of_queues)
        else:
            is_allowed = len(covering) > len(of_queues)
        return is_allowed and not self._is_denied(pattern, queue)

    def may_receive(self, subject: str, queue: str) -> bool:
        return not self._is_denied(subject, queue)

    def _rules_allow(self, subject: str) -> bool:
        rules = self.permissions.get("publish", {})
        unless_allowed = [] if "allow_responses" in self.permissions else [">"]
        return any(includes(rule, subject) for rule in rules.get("allow", unless_allowed)) and not (
            any(includes(rule, subject) for rule in rules.get("deny", ()))
        )

    def _is_denied(self, pattern: str, queue: str) -> bool:
        """Return whether a rule denies all that matches a pattern; one with a queue, only there."""
        for rule in self.permissions.get("subscribe", {}).get("deny", ()):
            subject, _, of_queue = rule.partition(" ")
            is_for_queue = not of_queue or (queue != "" and includes(of_queue, queue))
            if is_for_queue and includes(subject, pattern):
                return True
        return False


@dataclass
class Model:
    accounts: dict[str, dict[str, Any]]
    users: dict[str, User]
    subs: list[Sub] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)
    """Clients that want no messages of their own."""

    def publish(self, account: str, client: str, subject: str) -> list[Delivery]:
        """Return the deliveries of a message that a client of an account may publish."""
        return sorted(self._enter(account, client, self.mapped(account, subject), ()))

    def local(self, account: str, client: str, subject: str) -> list[Delivery]:
        """Return the deliveries within an account."""
        return [
            (sub.client, sub.sid, "" if sub.queue else subject)
            for sub in self.subs
            if sub.account == account
            and bound(sub.pattern, subject) is not None
            and not (sub.client == client and client in self.silent)
            and self.users[sub.client].may_receive(subject, sub.queue)
        ]

    def _enter(
        self, account: str, client: str, subject: str, passed: tuple[Any, ...]
    ) -> list[Delivery]:
        found = self.local(account, client, subject)
        if not passed:
            for importer in self.accounts:
                for given, _ in self._in_force(importer, "stream"):
                    local = renamed(given["stream"]["subject"], local_name(given), subject)
                    if given["stream"]["account"] == account and local is not None:
                        found += self.local(importer, client, local)
        queued = {each for each in found if not each[2]}  # a group gets it once, by any import
        found = [each for each in found if each[2]] + list(queued)
        for given, export in self._in_force(account, "service"):
            exporter = given["service"]["account"]
            to = back(given["service"]["subject"], local_name(given), subject)
            if to is not None and (exporter, export) not in passed:
                to = self.mapped(exporter, to)
                found += self._enter(exporter, client, to, (*passed, (exporter, export)))
        return found

    def _in_force(self, importer: str, kind: str) -> list[tuple[Any, str]]:
        """Return the imports that the exporting accounts permit, with the deciding export."""
        found = []
        seen = set()
        for given in self.accounts[importer].get("imports", ()):
            if kind not in given:
                continue
            source = given[kind]
            key = (source["account"], source["subject"])
            exports = [
                each
                for each in self.accounts[source["account"]].get("exports", ())
                if kind in each and includes(each[kind], source["subject"])
            ]
            exact = [each for each in exports if each[kind] == source["subject"]]
            narrowest = [
                each
                for each in exports
                if all(includes(other[kind], each[kind]) for other in exports)
            ]
            for export in (exact or narrowest)[:1]:
                if permits(export, importer, given) and not (kind == "stream" and key in seen):
                    seen.add(key)
                    found.append((given, export[kind]))
        return found

    def mapped(self, account: str, subject: str) -> str:
        mappings = self.accounts[account].get("mappings", {})
        if subject in mappings:
            return str(mappings[subject])
        for source, destination in mappings.items():
            mapped = renamed(source, destination, subject)
            if mapped is not None:
                return mapped
        return subject


def permits(export: dict[str, Any], importer: str, given: dict[str, Any]) -> bool:
    """Return whether an export may be imported."""
    place = export.get("account_token_position", 0)
    if place:
        tokens = (given.get("stream") or given["service"])["subject"].split(".")
        return len(tokens) >= place and tokens[place - 1] == importer
    if export.get("token_required"):
        return given.get("token") == activation(importer)
    return "accounts" not in export or importer in export["accounts"]


def activation(importer: str) -> str:
    """Return what stands for a valid activation token of an account."""
    return f"{importer} may import"


def local_name(given: dict[str, Any]) -> str:
    """Return the subjects of an import in the importing account."""
    source = given.get("stream") or given["service"]
    if "prefix" in given:
        return f"{given['prefix']}.{source['subject']}"
    return str(given.get("to", source["subject"]))


def bound(pattern: str, subject: str) -> list[str] | None:
    """Return what the wildcards of a pattern stand for in a subject; None: it does not match."""
    parts = [
        {"*": r"([^.]+)", ">": r"(.+)"}.get(token, re.escape(token)) for token in pattern.split(".")
    ]
    found = re.fullmatch(r"\.".join(parts), subject)
    return None if found is None else list(found.groups())


def renamed(source: str, destination: str, subject: str) -> str | None:
    """Return the subject that a source's wildcards give to a destination."""
    values = bound(source, subject)
    if values is None:
        return None
    stars = [value for token, value in zip(wildcards(source), values, strict=True) if token == "*"]
    tokens, star = [], 0
    for token in destination.split("."):
        if token == "*":
            star += 1
            tokens.append(stars[star - 1])
        elif token.startswith("$"):
            tokens.append(stars[int(token[1:]) - 1])
        else:
            tokens.append(values[-1] if token == ">" else token)
    return ".".join(tokens)


def back(exported: str, local: str, subject: str) -> str | None:
    """Return the exported subject of which `subject` is the local name."""
    if "*" not in exported and ">" not in exported:
        return exported if bound(local, subject) is not None else None
    order = [token for token in local.split(".") if token == "*" or token.startswith("$")]
    pattern = ".".join("*" if token.startswith("$") else token for token in local.split("."))
    values = bound(pattern, subject)
    if values is None:
        return None
    numbers = [at if token == "*" else int(token[1:]) for at, token in enumerate(order, 1)]
    by_number = dict(zip(numbers, values, strict=False))
    tokens, star = [], 0
    for token in exported.split("."):
        if token == "*":
            star += 1
        tokens.append(
            {"*": by_number.get(star, ""), ">": values[-1] if values else ""}.get(token, token)
        )
    return ".".join(tokens)


def wildcards(pattern: str) -> list[str]:
    return [token for token in pattern.split(".") if token in ("*", ">")]


def includes(wide: str, narrow: str) -> bool:
    """Return whether every subject of the narrow pattern matches the wide one."""
    a, b = wide.split("."), narrow.split(".")
    for at, token in enumerate(a):
        if token == ">":
            return len(b) > at
        if at >= len(b) or b[at] == ">" or (token != "*" and token != b[at]):
            return False
    return len(a) == len(b)
