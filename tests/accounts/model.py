"""What accounts share, as simply as it can be said: who gets which message.

A publish is mapped by its account, and goes to the subscriptions there. Then each import is asked:
a stream import of another account, if the message was published in the exporting account itself; a
service import of the account, if the message has not been through the same export before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

Delivery = tuple[str, str, str]
"""Client, subscription id, subject."""


@dataclass
class Sub:
    account: str
    client: str
    sid: str
    pattern: str


@dataclass
class Model:
    accounts: dict[str, dict[str, Any]]
    subs: list[Sub] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)
    """Clients that want no messages of their own."""

    def publish(self, account: str, client: str, subject: str) -> list[Delivery]:
        """Return the deliveries of a message that a client of an account publishes."""
        return sorted(self._enter(account, client, self._mapped(account, subject), ()))

    def local(self, account: str, client: str, subject: str) -> list[Delivery]:
        """Return the deliveries within an account."""
        return [
            (sub.client, sub.sid, subject)
            for sub in self.subs
            if sub.account == account
            and bound(sub.pattern, subject) is not None
            and not (sub.client == client and client in self.silent)
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
        for given, export in self._in_force(account, "service"):
            exporter = given["service"]["account"]
            to = back(given["service"]["subject"], local_name(given), subject)
            if to is not None and (exporter, export) not in passed:
                to = self._mapped(exporter, to)
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
                if permits(export, importer, source["subject"]) and not (
                    kind == "stream" and key in seen
                ):
                    seen.add(key)
                    found.append((given, export[kind]))
        return found

    def _mapped(self, account: str, subject: str) -> str:
        mappings = self.accounts[account].get("mappings", {})
        if subject in mappings:
            return str(mappings[subject])
        for source, destination in mappings.items():
            mapped = renamed(source, destination, subject)
            if mapped is not None:
                return mapped
        return subject


def permits(export: dict[str, Any], importer: str, subject: str) -> bool:
    """Return whether an export may be imported."""
    place = export.get("account_token_position", 0)
    if place:
        tokens = subject.split(".")
        return len(tokens) >= place and tokens[place - 1] == importer
    return "accounts" not in export or importer in export["accounts"]


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
