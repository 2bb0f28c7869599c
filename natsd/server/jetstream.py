"""JetStream as a part of the server: its directory, start, stop and log lines.

- `natsd.jetstream`, and modules that only this file needs, are imported only if JetStream is
  enabled. If there is nothing to recover, clients are
  accepted before, and their requests wait.
- An error at the start is a `JetStreamError` of one line; the start is then undone.
- Without a `store_dir` JetStream uses a new temporary directory, which is removed at the stop.

Source: the log lines and error texts are those of nats-server's server/jetstream.go.
"""

import asyncio
import contextlib
import importlib
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from natsd.accounts import Account, AccountDirectory
from natsd.clients.listener import lower_first
from natsd.config import Options
from natsd.config.jetstream_options import JetStreamOptions
from natsd.config.resources import is_default_store_dir, resolved
from natsd.core.durations import format_duration_ns
from natsd.core.network import Reactor
from natsd.server import banner
from natsd.server.own_files import make_private, refuse_foreign_link, shared_reason

if TYPE_CHECKING:
    from natsd.jetstream.early_requests import EarlyRequests
    from natsd.jetstream.jetstream import JetStream

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
        self._enabling: set[asyncio.Task[None]] = set()
        self._began_s = 0.0
        self._resolved = options.jetstream
        self._early: EarlyRequests | None = None
        self.engine: JetStream | None = None

    async def prepare(self) -> bool:
        """Create the store directory; return whether there is nothing to recover.

        That is so if the directory is empty, or JetStream is disabled. Raises JetStreamError.
        """
        if not self._options.jetstream.enabled:
            return True
        self._stopping = None
        self._began_s = asyncio.get_running_loop().time()
        _logger.info("Starting JetStream")
        async with self._undone_on_failure():
            self._resolved, is_empty = await asyncio.to_thread(self._prepare)
        banner.log_jetstream(self._resolved)
        return is_empty

    def hold_requests(self, accounts: AccountDirectory) -> None:
        """Hold the accounts' requests until JetStream is started; `prepare` must have returned.

        The requests of accounts that are created meanwhile are held too.
        """
        if self._options.jetstream.enabled:
            from natsd.jetstream.early_requests import EarlyRequests

            self._early = EarlyRequests(self._resolved.domain)
            for account in accounts.values():
                self._early.hold(account)
            accounts.on_added(self._early.hold)

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
        """Undo the start if the block raises. Raises JetStreamError for errors of the store."""
        try:
            yield
        except BaseException as error:
            from natsd.store.errors import StoreError

            await self._give_up()
            if isinstance(error, OSError | StoreError):
                raise JetStreamError(_reason(error)) from error
            raise

    async def _serve(self, reactor: Reactor, accounts: AccountDirectory) -> None:
        from natsd.jetstream.errors import ApiError
        from natsd.jetstream.jetstream import JetStream
        from natsd.jetstream.tiers import account_tiers

        self.engine = JetStream(
            self._resolved,
            reactor,
            asyncio.get_running_loop(),
            server_name=self._server_name,
            server_id=self._server_id,
            limits=account_tiers(self._options.accounts),
            has_default_room=self._options.jetstream.max_file_store < 0,
            early=self._early,
        )
        first = list(accounts.values())
        try:
            await self.engine.start(first)
        except ApiError as error:
            raise JetStreamError(error.description) from error
        self._accounts = accounts
        accounts.on_added(self._serve_added)
        if self._early is not None:
            accounts.no_longer(self._early.hold)
        for account in set(accounts.values()).difference(first):
            self._serve_added(account)

    def _serve_added(self, account: Account) -> None:
        """Serve an account that is created while the server runs."""
        assert self.engine is not None
        task = asyncio.create_task(self.engine.serve(account), name="natsd-jetstream-account")
        self._enabling.add(task)
        task.add_done_callback(self._enabled)

    def _enabled(self, task: asyncio.Task[None]) -> None:
        self._enabling.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.error("JetStream: an account is not served: %s", error)

    def renew(self, options: Options, reactor: Reactor, accounts: AccountDirectory) -> None:
        """Adopt the options of a reload: switch JetStream on or off, or raise its limits.

        A switch goes on in the background, after one that is under way. If JetStream cannot start,
        that is logged, and the server goes on without it.
        """
        is_switched = self._options.jetstream.enabled != options.jetstream.enabled
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
        await asyncio.gather(*self._enabling, return_exceptions=True)
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
