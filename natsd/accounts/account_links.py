"""The links between accounts at run time: imports that begin and end as settings change.

    configure({"A": AccountOptions(…), "B": …})
        ─▶ ImportRules decides which imports of these accounts, and of those that import from them,
           are in force
        ─▶ what is in force no more ends at once; what is new begins; the rest is not touched

- An import whose account is not known yet, or whose right is missing, is not in force. It begins
  when that changes: the settings of another account, an account that is created.
- A change of a service's settings (response type, threshold, latency) applies to its importers
  without a new link. Requests that are under way are answered.
- An activation token that expires ends its import then.
- An account without imports, exports and mappings has no part here.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from natsd.accounts.import_rules import (
    CheckActivation,
    ImportRules,
    Permit,
    no_activation,
)
from natsd.accounts.mappings import make_mappings
from natsd.config.account_options import AccountOptions
from natsd.config.sharing_options import ServiceExport, ServiceImport, StreamImport
from natsd.core.quoting import quoted
from natsd.core.subject_mapping import InvalidMapping

if TYPE_CHECKING:
    import asyncio

    from natsd.accounts.account import Account
    from natsd.accounts.account_sharing import AccountSharing
    from natsd.accounts.directory import AccountDirectory
    from natsd.accounts.remote_latency import RemoteMeasures
    from natsd.accounts.service_latency import Describe
    from natsd.core.network import Reactor

logger = logging.getLogger("natsd.accounts")

RECHECK_MAX_S: Final = 86_400.0


def _nobody_changed(_account: "Account") -> None:
    """Do nothing."""


class AccountLinks:
    """The links between the accounts of one server."""

    def __init__(
        self,
        directory: "AccountDirectory",
        reactor: "Reactor",
        describe: "Describe",
        *,
        cluster: str = "",
        remote: "RemoteMeasures | None" = None,
        check_activation: CheckActivation = no_activation,
        changed: Callable[["Account"], object] = _nobody_changed,
    ) -> None:
        """Follow the accounts of `directory`.

        `changed` is called with an account whose subject mappings changed: its clients must learn
        of that.
        """
        self._directory = directory
        self._reactor = reactor
        self._describe = describe
        self._cluster = cluster
        self._remote = remote
        self._changed = changed
        self._rules = ImportRules(check_activation)
        self._sharing: dict[str, AccountSharing] = {}
        self._importers: dict[str, set[str]] = {}  # exporter -> accounts that name it in an import
        self._timer: asyncio.TimerHandle | None = None
        directory.on_added(self._account_added)

    # ---- changes

    def move_to_cluster(self, cluster: str) -> None:
        """Use the subject mappings for servers of this cluster from now on."""
        if cluster == self._cluster:
            return
        self._cluster = cluster
        for account in self._directory.values():
            options = self._rules.options.get(account.name)
            if account.mapping_options and options is not None:
                account.mapping_options = {}  # so that they are made anew
                self._apply_mappings(account, options)

    def configure(self, changed: Mapping[str, AccountOptions]) -> None:
        """Apply the settings of these accounts; those of other accounts stay as they are."""
        for name, options in changed.items():
            self._note_importer(name, options)
            self._rules.options[name] = options
            account = self._directory.find(name)
            if account is not None:
                self._apply_mappings(account, options)
        self._renew(changed)

    def remove(self, names: Collection[str]) -> None:
        """End all links of accounts that are deleted, and the imports from them."""
        for name in names:
            self._note_importer(name, AccountOptions())
            self._rules.options.pop(name, None)
        self._renew(names)
        for name in names:
            self._rules.permits.pop(name, None)
            sharing = self._sharing.pop(name, None)
            if sharing is not None:
                sharing.close()

    def recheck(self, names: Iterable[str] | None = None) -> None:
        """Decide again over the imports of these accounts, and of all that import from them.

        For rights that changed elsewhere: signing keys, activation tokens. None: of all accounts.
        """
        self._renew(list(self._rules.options) if names is None else list(names))

    def close(self) -> None:
        """End all links."""
        if self._timer is not None:
            self._timer.cancel()
        self._directory.no_longer(self._account_added)
        self.remove(list(self._rules.options))

    def permits(self, name: str) -> list[Permit]:
        """Return the imports of an account that are in force."""
        return [
            permit for permit in self._rules.permits.get(name, ()) if self._has_both(name, permit)
        ]

    def options(self, name: str) -> AccountOptions:
        """Return the settings of an account as they were applied."""
        return self._rules.options.get(name, AccountOptions())

    # ---- applying

    def _note_importer(self, name: str, options: AccountOptions) -> None:
        """Note from which accounts this one imports."""
        before = self._rules.options.get(name, AccountOptions())
        for given in before.imports:
            self._importers.get(given.account, set()).discard(name)
        for given in options.imports:
            self._importers.setdefault(given.account, set()).add(name)

    def _apply_mappings(self, account: "Account", options: AccountOptions) -> None:
        """Put an account's subject mappings in force; the old ones stay if they are not valid."""
        before = account.mapping_options
        if before == options.mappings:
            return
        try:
            account.mappings = make_mappings(options.mappings, self._cluster)
        except InvalidMapping as error:
            logger.error("Account %s - %s", quoted(account.name), error)
            return
        account.mapping_options = options.mappings
        if account.entry is not None:
            account.entry.mappings = account.mappings
        self._changed(account)

    def _account_added(self, account: "Account") -> None:
        """Begin the links of an account that was created on demand."""
        options = self._rules.options.get(account.name)
        if options is not None:
            self._apply_mappings(account, options)
        if options is not None or account.name in self._importers:
            self._renew([account.name])

    def _renew(self, names: Iterable[str]) -> None:
        """Decide over the imports of these accounts and of their importers, and apply that."""
        names = list(names)
        affected = dict.fromkeys(names)
        for name in names:
            affected.update(dict.fromkeys(sorted(self._importers.get(name, ()))))
        for name in affected:
            self._rules.permits[name] = []
        for name in affected:
            for given, refused in self._rules.judge(name):
                logger.debug(
                    "Account %s - import of %s from %s is not in force: %s",
                    quoted(name), quoted(given.subject), quoted(given.account), refused,
                )  # fmt: skip
        for name in affected:
            self._apply(name)
        self._set_timer()

    def _apply(self, name: str) -> None:
        """Begin and end links of one account, so that they are those in force."""
        account = self._directory.get(name)
        permits = [each for each in self._rules.permits[name] if self._has_both(name, each)]
        if account is None or (not permits and name not in self._sharing):
            return
        sharing = self._sharing_of(account)
        wanted = {self._key(permit): permit for permit in permits}
        sharing.end([key for key in sharing.imports() if key not in wanted])
        for key, permit in wanted.items():
            exporter = self._directory[permit.given.account]
            if isinstance(permit.given, StreamImport):
                sharing.begin_stream(key, exporter, permit)
            else:
                assert isinstance(permit.given, ServiceImport)
                assert isinstance(permit.export, ServiceExport)
                source = self._sharing_of(exporter)
                sharing.begin_service(key, source, source.export(permit.export), permit)

    def _has_both(self, name: str, permit: Permit) -> bool:
        """Whether both accounts of an import exist."""
        return name in self._directory and permit.given.account in self._directory

    def _key(self, permit: Permit) -> tuple[Any, ...]:
        """Return what identifies a link: with another key, it is another link."""
        given = permit.given
        exporter = self._directory[given.account]
        if isinstance(given, StreamImport):
            return (id(exporter), permit.patterns, given.allow_trace)
        return (id(exporter), permit.patterns, given.share, permit.export.subject)

    def _sharing_of(self, account: "Account") -> "AccountSharing":
        """Return the part of an account in links; it is made with the first one."""
        sharing = self._sharing.get(account.name)
        if sharing is None:
            from natsd.accounts.account_sharing import AccountSharing  # few servers have links

            sharing = self._sharing[account.name] = AccountSharing(
                account, self._reactor, self._describe, self._remote
            )
        return sharing

    def _set_timer(self) -> None:
        """Decide again when the next activation token expires."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = [
            permit.expires_ns
            for permits in self._rules.permits.values()
            for permit in permits
            if permit.expires_ns
        ]
        if due:
            delay_s = min(max((min(due) - time.time_ns()) / 1e9, 0.0) + 0.001, RECHECK_MAX_S)
            self._timer = self._reactor.loop.call_later(delay_s, self._expired)

    def _expired(self) -> None:
        """Decide again over the imports of accounts whose activation tokens have expired."""
        self._timer = None
        now_ns = time.time_ns()
        self._renew(
            [
                name
                for name, permits in self._rules.permits.items()
                if any(0 < permit.expires_ns <= now_ns for permit in permits)
            ]
        )
