"""Lookup of the API route of a subject, token by token, shared by all accounts.

    STREAM ─┬─ NAMES            ─▶ route
            ├─ INFO ── *        ─▶ route
            └─ MSG ─┬─ GET ── * ─▶ route
                    └─ …

Promise
- No token of the table stands beside a wildcard at the same place, so a lookup never goes back.
"""

from collections.abc import Iterable
from typing import Final

from natsd.jetstream.api.table import Route

_ANY: Final = "*"
_REST: Final = ">"


class _Node:
    """The routes whose subjects begin with the same tokens."""

    __slots__ = ("next", "rest", "route")

    def __init__(self) -> None:
        self.next: dict[str, _Node] = {}
        self.route: Route | None = None  # the route that ends here
        self.rest: Route | None = None  # the route that continues with `>`


class RouteIndex:
    """The routes of a table, by subject without the API's prefix."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        for route in routes:
            node = self._root
            *tokens, last = route.subject.split(".")
            for token in tokens if last == _REST else [*tokens, last]:
                node = node.next.setdefault(token, _Node())
            if last == _REST:
                node.rest = route
            else:
                node.route = route

    def find(self, subject: str) -> Route | None:
        """Return the route of a subject without wildcards; None if it is no request."""
        node, rest = self._root, None
        for token in subject.split("."):
            rest = node.rest
            following = node.next.get(token) or node.next.get(_ANY)
            if following is None:
                return rest
            node = following
        return node.route
