"""One account's part in the links between accounts: its exported services, its imports.

- It listens to the account's SubList: subscriptions are linked with stream imports, and replies
  that nobody awaits any more are given up.
- Imported here only, so that a server without imports does not load the compiled sinks.
"""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

import msgspec

from natsd.accounts.import_rules import Permit
from natsd.accounts.service_latency import Describe, ServiceLatency
from natsd.accounts.stream_links import StreamLink, StreamLinks
from natsd.config.sharing_options import ServiceExport, ServiceImport
from natsd.core.imports import AccountEntry, ExportedService, ResponseType, ServiceImportSink
from natsd.core.network import Reactor
from natsd.core.routing import Subscription

if TYPE_CHECKING:
    from natsd.accounts.account import Account
    from natsd.accounts.remote_latency import RemoteMeasures

DEFAULT_THRESHOLD_NS: Final = 120 * 10**9
RESPONSE_TYPES: Final = {
    "singleton": ResponseType.SINGLETON,
    "stream": ResponseType.STREAM,
    "chunked": ResponseType.CHUNKED,
}

Key = tuple[Any, ...]


class AccountSharing:
    """The exported services and the imports of one account."""

    def __init__(
        self,
        account: "Account",
        reactor: Reactor,
        describe: Describe,
        remote: "RemoteMeasures | None" = None,
    ) -> None:
        self.account = account
        self._reactor = reactor
        self._describe = describe
        self._remote = remote
        self._exports: dict[str, ExportedService] = {}
        self._streams: dict[Key, StreamLink] = {}
        self._services: dict[Key, Subscription] = {}
        self._links = StreamLinks(account, reactor)
        if account.entry is None:
            account.entry = AccountEntry(reactor, account)
        self.entry: AccountEntry = account.entry
        account.sublist.listen(self)

    def imports(self) -> list[Key]:
        """Return the keys of the imports that are in force."""
        return [*self._streams, *self._services]

    def export(self, given: ServiceExport) -> ExportedService:
        """Return an exported service; its settings apply at once, to all importers."""
        service = self._exports.get(given.subject)
        if service is None:
            service = self._exports[given.subject] = ExportedService(given.subject)
        threshold = given.response_threshold
        service.response_type = RESPONSE_TYPES[given.response_type]
        service.threshold_ns = (
            DEFAULT_THRESHOLD_NS if threshold is None else round(threshold.total_seconds() * 1e9)
        )
        service.allows_trace = given.allow_trace
        if given.latency is None:
            service.latency = None
        elif not isinstance(service.latency, ServiceLatency) or (
            service.latency.options != given.latency
        ):
            service.latency = ServiceLatency(
                self.account, given.latency, self._describe, self._remote
            )
        return service

    def begin_stream(self, key: Key, exporter: "Account", permit: Permit) -> None:
        """Begin a stream import, unless it is in force already."""
        if key not in self._streams:
            link = self._streams[key] = StreamLink(self.account, exporter, permit)
            self._links.begin(link)

    def begin_service(
        self, key: Key, source: "AccountSharing", export: ExportedService, permit: Permit
    ) -> None:
        """Begin a service import, unless it is in force already."""
        if key in self._services:
            return
        assert isinstance(permit.given, ServiceImport)
        patterns = permit.patterns
        is_renamed = patterns.exported != patterns.local and not patterns.has_wildcards
        sink = ServiceImportSink(
            self.entry,
            source.entry,
            export,
            encoded(self._describe),
            subject=patterns.exported if is_renamed else None,
            transform=patterns.to_exported() if patterns.is_mapped else None,
            is_shared=permit.given.share,
        )
        subscription = Subscription(patterns.local, sid=b"0", sink=sink)
        subscription.is_private = True  # each server imports the requests of its own clients
        self._services[key] = subscription
        self.account.sublist.insert(subscription)

    def end(self, keys: Collection[Key]) -> None:
        """End imports."""
        self._links.end([self._streams.pop(key) for key in keys if key in self._streams])
        for key in keys:
            subscription = self._services.pop(key, None)
            if subscription is not None:
                self.account.sublist.remove(subscription)
                subscription.detach()

    def close(self) -> None:
        """End all imports, and give up all replies."""
        self.end(self.imports())
        self.account.sublist.listen(None)
        self.entry.close()
        self.account.entry = None

    # ---- of the SubList

    def added(self, sub: Subscription) -> None:
        """Link a new subscription."""
        self._links.added(sub)

    def removed(self, subs: list[Subscription]) -> None:
        """Unlink subscriptions that have ended."""
        for sub in subs:
            self._links.removed(sub)
            self.entry.unsubscribed(sub)


def encoded(describe: Describe) -> Callable[..., bytes]:
    """Return a function that returns what `describe` returns, as JSON."""
    return lambda *asked: msgspec.json.encode(describe(*asked))
