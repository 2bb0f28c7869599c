"""JetStream as a part of the server: its directory, start, stop and log lines.

- `natsd.jetstream`, and modules that only this file needs, are imported only if JetStream is
  enabled. If there is nothing to recover, clients are
  accepted before, and their requests wait.
- Accounts are served as `settings_of` says, which is the configuration unless something else (a
  resolver) is put in its place: at the start, when an account is created, and when
  `configure_account` is called.
- An error at the start is a `JetStreamError` of one line; the start is then undone.
- Without a `store_dir` JetStream uses a new temporary directory, which is removed at the stop.

Source: the log lines and error texts are those of nats-server's server/jetstream.go.
"""

import asyncio
import contextlib
import importlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from natsd.accounts import Account, AccountDirectory
from natsd.clients.listener import lower_first
from natsd.config import Options, OptionsError
from natsd.config.jetstream_options import JetStreamOptions
from natsd.config.resources import is_default_store_dir, resolved
from natsd.core.durations import format_duration_ns
from natsd.core.network import Reactor
from natsd.core.quoting import quoted
from natsd.server import banner
from natsd.server.own_files import make_private, refuse_foreign_link, shared_reason

if TYPE_CHECKING:
    from natsd.config.account_options import AccountOptions
    from natsd.jetstream.early_requests import EarlyRequests
    from natsd.jetstream.jetstream import JetStream
    from natsd.jetstream.meta_group.cluster import ClusterSettings
    from natsd.jetstream.tiers import AccountTiers
    from natsd.server.cluster_part import ClusterPart

_logger = logging.getLogger("natsd.jetstream")

TEMPORARY_PREFIX: Final = "natsd-"
_ENGINE: Final = "natsd.jetstream.jetstream"


class JetStreamError(Exception):
    """JetStream cannot start; the text is one line for the user."""

    def __init__(self, reason: object) -> None:
        super().__init__(f"Can't start JetStream: {reason}")


class JetStreamPart:
    """One server's JetStream; `engine` is None unless it is enabled and between start and stop."""

    def __init__(self, options: Options, server_name: str, server_id: str) -> None:
        self._options = options
        self._server_name = server_name
        self._server_id = server_id
        self._temporary: Path | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._switching: asyncio.Task[None] | None = None
        self._accounts: AccountDirectory | None = None
        self._configuring: set[asyncio.Task[None]] = set()
        self._wanted: dict[Account, AccountTiers | None] = {}  # limits that are being applied
        self.settings_of: Callable[[Account], AccountOptions | None] = self._configured
        self._began_s = 0.0
        self._resolved = options.jetstream
        self._early: EarlyRequests | None = None
        self.cluster_part: ClusterPart | None = None  # None: the server is in no cluster
        self.engine: JetStream | None = None

    def _configured(self, account: Account) -> "AccountOptions | None":
        """Return the settings of an account; None: it has none."""
        return self._options.accounts.get(account.name)

    async def prepare(self) -> bool:
        """Create the store directory; return whether there is nothing to recover.

        That is so if the directory is empty, or JetStream is disabled. Raises JetStreamError, and
        OptionsError if the server has no name in its cluster.
        """
        if not self._options.jetstream.enabled:
            return True
        if self.cluster_part is not None:
            check_jetstream_cluster(self._options)
        self._stopping = None
        self._began_s = asyncio.get_running_loop().time()
        _logger.info("Starting JetStream")
        async with self._undone_on_failure():
            self._resolved, is_empty = await asyncio.to_thread(self._prepare)
        banner.log_jetstream(self._resolved)
        return is_empty

    def stored_accounts(self) -> list[str]:
        """Return the accounts that have files; `prepare` must have returned. Blocks."""
        if not self._options.jetstream.enabled:
            return []
        directory = self._resolved.directory
        return [entry.name for entry in directory.iterdir()] if directory.is_dir() else []

    def hold_requests(self, accounts: AccountDirectory) -> None:
        """Hold the accounts' requests until JetStream is started; `prepare` must have returned.

        The requests of accounts that are created meanwhile are held too.
        """
        if self._options.jetstream.enabled:
            from natsd.jetstream.early_requests import EarlyRequests

            self._early = EarlyRequests(self._resolved.domain)
            for account in accounts.values():
                self._hold_early(account)
            accounts.on_added(self._hold_early)

    def _hold_early(self, account: Account) -> None:
        if self._early is not None and not self._imports_api(account):
            self._early.hold(account)

    async def load(self) -> None:
        """Import JetStream's modules in a thread; on a slow machine the longest part of a start.

        Raises JetStreamError.
        """
        if self._options.jetstream.enabled:
            async with self._undone_on_failure():
                await asyncio.to_thread(importlib.import_module, _ENGINE)

    async def start(self, reactor: Reactor, accounts: AccountDirectory) -> None:
        """Recover all stored streams and serve the accounts; does nothing unless enabled.

        `prepare` and `load` must have returned before. Raises JetStreamError.
        """
        if not self._options.jetstream.enabled:
            return
        async with self._undone_on_failure():
            await self._serve(reactor, accounts)
        took_ns = round((asyncio.get_running_loop().time() - self._began_s) * 1e9)
        _logger.info("Took %s to start JetStream", format_duration_ns(took_ns // 1000 * 1000))

    @asynccontextmanager
    async def _undone_on_failure(self) -> AsyncIterator[None]:
        """Undo the start if the block raises.

        Raises JetStreamError for errors of the store and of the RAFT logs.
        """
        try:
            yield
        except BaseException as error:
            from natsd.raft.storage.errors import LogsUnreadableError
            from natsd.store.errors import StoreError

            await self._give_up()
            if isinstance(error, OSError | StoreError | LogsUnreadableError):
                raise JetStreamError(_reason(error)) from error
            raise

    async def _serve(self, reactor: Reactor, accounts: AccountDirectory) -> None:
        from natsd.jetstream.errors import ApiError
        from natsd.jetstream.jetstream import JetStream
        from natsd.jetstream.served_accounts import AccountNameError

        self.engine = JetStream(
            self._resolved,
            reactor,
            asyncio.get_running_loop(),
            server_name=self._server_name,
            server_id=self._server_id,
            limits_of=self._limits_of,
            has_default_room=self._options.jetstream.max_file_store < 0,
            early=self._early,
            cluster=self._cluster_settings(),
        )
        first = list(accounts.values())
        try:
            await self.engine.start(first)
        except ApiError as error:
            raise JetStreamError(error.description) from error
        except AccountNameError as error:
            raise JetStreamError(error) from error
        self._accounts = accounts
        accounts.on_added(self._serve_added)
        if self._early is not None:
            accounts.no_longer(self._hold_early)
        for account in set(accounts.values()).difference(first):
            self._serve_added(account)
        self._log_unserved(accounts)

    def _cluster_settings(self) -> "ClusterSettings | None":
        part = self.cluster_part
        if part is None:
            return None
        from natsd.jetstream.meta_group.cluster import ClusterSettings  # few servers need it

        return ClusterSettings(
            name=lambda: part.name,
            expected=part.expected_servers,
            tags=tuple(self._options.server_tags),
        )

    def _log_unserved(self, accounts: AccountDirectory) -> None:
        """Tell which accounts have streams that are not served; nats-server does not tell.

        An account that can be created on demand is created, and served soon.
        """
        assert self.engine is not None
        if self.engine.cluster is not None:
            return
        for name, count in sorted(self.engine.unserved.items()):
            account = accounts.find(name)
            if account is None or not self._limits_of(account):
                _logger.warning(
                    "JetStream: account %s has %d streams on disk, which are not served: the "
                    "account does not exist, or has no JetStream; the files stay",
                    quoted(name),
                    count,
                )

    # Accounts

    def _limits_of(self, account: Account) -> "AccountTiers | None":
        """Return the limits of an account as `JetStream` takes them."""
        from natsd.jetstream.tiers import UNLIMITED, tiers_of

        settings = self.settings_of(account)
        jetstream = None if settings is None else settings.jetstream
        if jetstream is None and not self._options.has_own_accounts:
            return UNLIMITED
        limits = tiers_of(jetstream)
        return None if not limits and self._imports_api(account) else limits

    def _limits_if_running(self, account: Account) -> "AccountTiers | None":
        return None if self.engine is None else self._limits_of(account)

    def _imports_api(self, account: Account) -> bool:
        return imports_api(self.settings_of(account), self._resolved.domain)

    def configure_account(self, account: Account) -> None:
        """Enable, change or disable JetStream of an account, as `settings_of` says, soon.

        It is called when the settings of the account have changed. If they change again before
        they are applied, only the last ones are. An error is logged, and the account keeps what it
        had. The requests of an account that is being enabled wait.
        """
        if self.engine is None or account.is_system:
            return
        limits = self._limits_of(account)
        if limits and (account.name not in self.engine.accounts or account in self._wanted):
            self.engine.api.hold(account)
        is_waiting = account in self._wanted
        self._wanted[account] = dict(limits) if limits is not None else None
        if not is_waiting:
            self._begin(self._apply_wanted(account), account)

    async def _apply_wanted(self, account: Account) -> None:
        assert self.engine is not None
        limits: AccountTiers | None = {}
        is_first = True
        try:
            while is_first or limits is not self._wanted[account]:
                is_first, limits = False, self._wanted[account]
                if limits:
                    await self.engine.configure_account(account, limits)
                else:
                    await self.engine.disable_account(account)
            if not limits:
                self.engine.refuse(account, limits)
        finally:
            del self._wanted[account]

    def remove_account(self, account: Account) -> None:
        """Disable JetStream of an account that is being removed, soon; its files stay."""
        if self.engine is not None:
            self._begin(self.engine.remove_account(account), account)

    async def configured(self) -> None:
        """Wait until the accounts are as `configure_account` and `remove_account` said."""
        while self._configuring:
            await asyncio.wait(self._configuring)

    def _serve_added(self, account: Account) -> None:
        """Serve an account that is created while the server runs."""
        self.configure_account(account)

    def _begin(self, work: Coroutine[object, object, None], account: Account) -> None:
        task = asyncio.create_task(work, name="natsd-jetstream-account")
        self._configuring.add(task)
        task.add_done_callback(partial(self._ended, account))

    def _ended(self, account: Account, task: asyncio.Task[None]) -> None:
        self._configuring.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.error(
                "JetStream: the settings of account %s are not applied: %s",
                quoted(account.name),
                _reason(error) if isinstance(error, Exception) else error,
            )

    def renew(self, options: Options, reactor: Reactor, accounts: AccountDirectory) -> None:
        """Adopt the options of a reload: switch JetStream on or off, or change what can be changed.

        Accounts whose JetStream is another one in the options are configured. All of that goes on
        in the background, a switch after one that is under way. If JetStream cannot start, that is
        logged, and the server goes on without it.
        """
        is_switched = self._options.jetstream.enabled != options.jetstream.enabled
        before = {account: self._limits_if_running(account) for account in accounts.values()}
        self._options = options
        if is_switched:
            self._switching = asyncio.create_task(
                self._switch(self._switching, reactor, accounts), name="natsd-jetstream-switch"
            )
        elif self.engine is not None:
            limits, usage = options.jetstream, self.engine.usage
            self.engine.grow(
                max(usage.memory_limit, limits.max_memory_store),
                max(usage.file_limit, limits.max_file_store),
            )
            self.engine.scrub_as(limits)
            for account, limits_before in before.items():
                if self._limits_of(account) != limits_before:
                    self.configure_account(account)

    def check(self, options: Options) -> None:
        """Check that the server has what the accounts of a reload may use together.

        Raises OptionsError; to be called before anything of the reload is applied.
        """
        if self.engine is None or not options.jetstream.enabled:
            return
        limits, usage = options.jetstream, self.engine.usage
        check_promises(
            options,
            memory_limit=max(usage.memory_limit, limits.max_memory_store),
            file_limit=max(usage.file_limit, limits.max_file_store),
        )

    async def switched(self) -> None:
        """Wait until a switch that `renew` began is over."""
        if self._switching is not None:
            await asyncio.wait({self._switching})

    async def _switch(
        self,
        earlier: asyncio.Task[None] | None,
        reactor: Reactor,
        accounts: AccountDirectory,
    ) -> None:
        if earlier is not None:
            await asyncio.wait({earlier})
        if not self._options.jetstream.enabled:
            await self._stop_engine()
        elif self.engine is None:
            try:
                await self.prepare()
                await self.load()
                await self.start(reactor, accounts)
            except JetStreamError as error:
                _logger.warning("%s", error)

    async def stop(self) -> None:
        """Stop JetStream and close its files; acknowledged messages are on disk in any case.

        A switch that is under way ends before. Calls share one stop. If a caller is cancelled, the
        stop still continues to its end.
        """
        await self.switched()
        await self._stop_engine()

    async def _stop_engine(self) -> None:
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(), name="natsd-jetstream-stop")
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        if self.engine is None:
            await self._give_up()
            return
        _logger.info("Initiating JetStream Shutdown...")
        if self._accounts is not None:
            self._accounts.no_longer(self._serve_added)
        await self.configured()
        try:
            await self.engine.stop()
        except Exception:
            _logger.exception("JetStream did not close in order")
        finally:
            await self._give_up()
        _logger.info("JetStream Shutdown")

    def _prepare(self) -> tuple[JetStreamOptions, bool]:
        """Create the store directory; return the resolved settings, and whether it is empty.

        Blocks on the disk. Raises JetStreamError or OSError.
        """
        options = self._options.jetstream
        store_dir = self._options.store_dir or options.store_dir
        if store_dir is not None and is_default_store_dir(store_dir):
            own_directory(store_dir)
        if store_dir is None:
            import tempfile

            store_dir = self._temporary = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX))
        options = replace(options, store_dir=store_dir.absolute())
        make_writable(options.directory)
        if reason := shared_reason(options.directory):
            _logger.warning("JetStream: storage directory %s %s", options.directory, reason)
        is_empty = not any(options.directory.iterdir())
        return resolved(options), is_empty

    async def _give_up(self) -> None:
        """Drop the engine and remove the temporary directory, if there is one."""
        self.engine = self._early = None
        if self._temporary is not None:
            import shutil

            await asyncio.to_thread(shutil.rmtree, self._temporary, ignore_errors=True)
            self._temporary = None


def imports_api(settings: "AccountOptions | None", domain: str = "") -> bool:
    """Return whether the account imports JetStream's API of another account, or a part of it.

    With `domain` the API is that of the domain too.
    """
    if settings is None or not settings.imports:
        return False
    from natsd.config.sharing_options import ServiceImport

    prefixes = [("$JS", "API"), ("$JS", domain, "API")]
    return any(
        _may_match(each.to or each.subject, prefix)
        for each in settings.imports
        if isinstance(each, ServiceImport)
        for prefix in prefixes
    )


def _may_match(pattern: str, prefix: tuple[str, ...]) -> bool:
    """Return whether the pattern matches a subject behind the prefix."""
    tokens = pattern.split(".")
    for token, own in zip(tokens, prefix, strict=False):
        if token == ">":
            return True
        if token not in ("*", own):
            return False
    return len(tokens) > len(prefix)


def own_directory(directory: Path) -> None:
    """Create the default directory, or check that only this user can write to it.

    Raises JetStreamError.
    """
    try:
        make_private(directory)
    except OSError as error:
        raise JetStreamError(
            f"the default storage directory {_reason(error)}; choose one with -sd"
        ) from None


def make_writable(directory: Path) -> None:
    """Create the directory if needed and check that it is writable. Raises JetStreamError."""
    try:
        refuse_foreign_link(directory)
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if isinstance(error, FileExistsError | NotADirectoryError):
            raise JetStreamError(f"storage directory is not a directory: {directory}") from None
        raise JetStreamError(f"could not create storage directory - {_reason(error)}") from None
    try:
        _create_unnamed_file(directory)
    except OSError as error:
        raise JetStreamError(f"storage directory is not writable - {_reason(error)}") from None


def _create_unnamed_file(directory: Path) -> None:
    """Create a file without a name in the directory, and drop it. Raises OSError."""
    with contextlib.suppress(OSError, AttributeError):  # not every system and file system can
        os.close(os.open(directory, os.O_TMPFILE | os.O_WRONLY, 0o600))
        return
    import tempfile  # here, since it loads OpenSSL: a fifteenth of a start

    with tempfile.TemporaryFile(dir=directory):
        pass


def _reason(error: Exception) -> str:
    """Return an error as one line: file name and system error, or the text of the exception."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return where + lower_first(error.strerror)
    return " ".join(str(error).split())


def check_jetstream_cluster(options: Options) -> None:
    """Check what JetStream needs in a cluster. Raises OptionsError."""
    if not options.server_name:
        raise OptionsError(
            "jetstream cluster requires `server_name` to be set", setting="server_name"
        )
    if options.cluster is None or not options.cluster.name:
        raise OptionsError(
            "jetstream cluster requires `cluster.name` to be set", path=("cluster", "name")
        )


def check_promises(options: Options, memory_limit: int, file_limit: int) -> None:
    """Check that a server with these bytes (-1: any) has what its accounts may use together.

    Raises OptionsError.
    """
    from natsd.jetstream.errors import ApiError
    from natsd.jetstream.resources import PromisedBytes, check_promised
    from natsd.jetstream.stream.publishing import Usage
    from natsd.jetstream.tiers import tiers_of

    tiers = [tiers_of(each.jetstream) for each in options.accounts.values()]
    promised = PromisedBytes.of(limits for each in tiers for limits in each.values())
    try:
        check_promised(Usage(memory_limit=memory_limit, file_limit=file_limit), promised)
    except ApiError as error:
        raise OptionsError(f"accounts: {error.description}", setting="accounts") from error
