"""The stream imports of one account: its subscriptions, listed in the accounts that export.

    SUB a.orders.eu.* in B ─▶ StreamLinks of B ─▶ each import that has subjects in common
                                     └▶ ImportedSubscription orders.eu.* in A's SubList

- The links follow the account's SubList: a subscription that comes is listed with each import that
  it reaches, and one that goes is removed there, whoever owns it.
- A link that ends delivers nothing from then on. Its subscriptions are removed from the exporting
  account in slices; an import that begins lists the existing ones in slices, too.

Source: nats-server's `addShadowSubscriptions` (server/client.go).
"""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from natsd.accounts.import_rules import Permit
from natsd.config.sharing_options import StreamImport
from natsd.core.imports import AccountEntry, ServiceImportSink, StreamImportSink
from natsd.core.network import Reactor
from natsd.core.routing import ImportedSubscription, SubList, Subscription

if TYPE_CHECKING:
    from natsd.accounts.account import Account

PER_TURN: Final = 1000
"""Subscriptions that are listed or removed in one turn of the loop."""


class StreamLink:
    """One stream import that is in force."""

    def __init__(self, importer: "Account", exporter: "Account", permit: Permit) -> None:
        assert isinstance(permit.given, StreamImport)
        patterns = permit.patterns
        is_renamed = patterns.exported != patterns.local and not patterns.has_wildcards
        self.permit = permit
        self.exporter = exporter
        self.sink = StreamImportSink(
            importer,
            subject=patterns.local if is_renamed else None,
            transform=patterns.to_local() if patterns.is_mapped else None,
            allows_trace=permit.given.allow_trace,
        )
        self.imported: dict[Subscription, ImportedSubscription] = {}

    def add(self, sub: Subscription) -> bool:
        """List a subscription of the importing account; return whether it reaches the import."""
        if sub in self.imported or self.sink.has_ended:
            return False
        subject = self.permit.patterns.exported_by(sub.subject)
        if subject is None:
            return False
        imported = ImportedSubscription(subject.encode("utf-8", "surrogateescape"), sub, self.sink)
        self.imported[sub] = imported
        self.exporter.sublist.insert(imported)
        return True

    def remove(self, sub: Subscription) -> None:
        """Remove a subscription that has ended, if it is listed."""
        imported = self.imported.pop(sub, None)
        if imported is not None:
            self.exporter.sublist.remove(imported)
            imported.detach()

    def remove_some(self) -> bool:
        """Remove up to PER_TURN subscriptions; return whether there are more."""
        some = list(islice(self.imported, PER_TURN))
        batch = [self.imported.pop(sub) for sub in some]
        self.exporter.sublist.remove_batch(batch)
        for imported in batch:
            imported.detach()
        return bool(self.imported)


class StreamLinks:
    """The stream imports of one account that are in force."""

    def __init__(self, account: "Account", reactor: Reactor) -> None:
        self._account = account
        self._reactor = reactor
        self._links: dict[Subscription, StreamLink] = {}  # by the pattern in `_patterns`
        self._patterns = SubList(cache=False)  # the local subjects of all links
        self._linked: dict[Subscription, list[StreamLink]] = {}

    def __iter__(self) -> Iterator[StreamLink]:
        return iter(self._links.values())

    def begin(self, link: StreamLink) -> None:
        """Put a link in force, for existing subscriptions too."""
        pattern = Subscription(link.permit.local)
        self._patterns.insert(pattern)
        self._links[pattern] = link
        found = self._account.sublist.reverse_match(link.permit.local)
        subs = dict.fromkeys(chain(found.plain, chain.from_iterable(found.queues.values())))
        self._add_some(link, iter(subs))

    def _add_some(self, link: StreamLink, subs: Iterator[Subscription]) -> None:
        """List up to PER_TURN subscriptions, and the rest in later turns."""
        for sub in islice(subs, PER_TURN):
            if is_linkable(sub) and sub in self._account.sublist and link.add(sub):
                self._linked.setdefault(sub, []).append(link)
        rest = next(subs, None)
        if rest is not None:
            self._reactor.loop.call_soon(self._add_some, link, chain((rest,), subs))

    def end(self, links: Iterable[StreamLink]) -> None:
        """End links at once; their subscriptions are removed in slices."""
        ending = set(links)
        for pattern in [pattern for pattern, link in self._links.items() if link in ending]:
            self._patterns.remove(pattern)
            del self._links[pattern]
        for link in ending:
            link.sink.has_ended = True
            self._unlink_some(link)

    def _unlink_some(self, link: StreamLink) -> None:
        """Remove up to PER_TURN subscriptions of an ended link, and the rest in later turns."""
        for sub in islice(link.imported, PER_TURN):
            linked = self._linked.get(sub, [])
            if link in linked:
                linked.remove(link)
                if not linked:
                    del self._linked[sub]
        if link.remove_some():
            self._reactor.loop.call_soon(self._unlink_some, link)

    def added(self, sub: Subscription) -> None:
        """List a new subscription with the links that it reaches."""
        if self._links and is_linkable(sub):
            found = self._patterns.reverse_match(sub.subject).plain
            links = [link for link in map(self._links.__getitem__, found) if link.add(sub)]
            if links:
                self._linked[sub] = links

    def removed(self, sub: Subscription) -> None:
        """Remove a subscription that has ended."""
        for link in self._linked.pop(sub, ()):
            link.remove(sub)


def is_linkable(sub: Subscription) -> bool:
    """Return whether a subscription gets imported messages.

    An imported stream is not exported again, and services get requests of their own account only.
    Another server lists its own subscriptions with its own imports.
    """
    return not (
        sub.is_remote
        or isinstance(sub, ImportedSubscription)
        or isinstance(sub.sink, ServiceImportSink | AccountEntry)
    )
