"""JetStream as a part of the server: where its files are, when it starts and ends, what is logged.

- Nothing of `natsd.jetstream`, nor what only this file needs, is imported unless it is enabled.
- Whatever keeps it from starting is a `JetStreamError` of one line; nothing of it is left then.
- Without a `store_dir` it works in a temporary directory of its own, which goes when it ends.

Source: nats-server's log lines and the reasons it gives, in its words.
"""

import asyncio
import importlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from natsd.accounts import Account
from natsd.clients.listener import lower_first
from natsd.config import Options
from natsd.config.durations import format_duration_ns
from natsd.config.jetstream_options import JetStreamOptions
from natsd.config.resources import default_store_dir, resolved
from natsd.core.reactor import Reactor
from natsd.server import banner
from natsd.server.own_files import make_private, refuse_foreign_link, shared_reason
from natsd.store.errors import StoreError

if TYPE_CHECKING:
    from natsd.jetstream.jetstream import JetStream

_logger = logging.getLogger("natsd.jetstream")

TEMPORARY_PREFIX: Final = "natsd-"
_ENGINE: Final = "natsd.jetstream.jetstream"


class JetStreamError(Exception):
    """JetStream cannot be started; the text is one line for the user."""

    def __init__(self, reason: object) -> None:
        super().__init__(f"Can't start JetStream: {reason}")


class JetStreamPart:
    """One server's JetStream: there between `start` and `stop`, if it is enabled at all."""

    def __init__(self, options: Options, server_name: str, server_id: str) -> None:
        self._options = options
        self._server_name = server_name
        self._server_id = server_id
        self._temporary: Path | None = None
        self._stopping: asyncio.Task[None] | None = None
        self.engine: JetStream | None = None

    async def load(self) -> None:
        """Import what serves JetStream: on a slow machine, the longest part of a start."""
        if self._options.jetstream.enabled:
            await asyncio.to_thread(importlib.import_module, _ENGINE)

    async def start(self, reactor: Reactor, accounts: Sequence[Account]) -> None:
        """Recover all that is stored and serve the accounts, once loaded; raises JetStreamError."""
        if not self._options.jetstream.enabled:
            return
        self._stopping = None
        loop = asyncio.get_running_loop()
        began = loop.time()
        _logger.info("Starting JetStream")
        try:
            options = await asyncio.to_thread(self._prepare)
            banner.log_jetstream(options)
            await self._serve(options, reactor, accounts)
        except (OSError, StoreError) as error:
            await self._give_up()
            raise JetStreamError(_reason(error)) from error
        except BaseException:
            await self._give_up()
            raise
        took_ns = round((loop.time() - began) * 1e9)
        _logger.info("Took %s to start JetStream", format_duration_ns(took_ns // 1000 * 1000))

    async def _serve(
        self, options: JetStreamOptions, reactor: Reactor, accounts: Sequence[Account]
    ) -> None:
        from natsd.jetstream.errors import ApiError
        from natsd.jetstream.jetstream import JetStream
        from natsd.jetstream.tiers import account_tiers

        self.engine = JetStream(
            options,
            reactor,
            asyncio.get_running_loop(),
            server_name=self._server_name,
            server_id=self._server_id,
            limits=account_tiers(self._options.accounts),
            has_default_room=self._options.jetstream.max_file_store < 0,
        )
        try:
            await self.engine.start(accounts)
        except ApiError as error:
            raise JetStreamError(error.description) from error

    async def stop(self) -> None:
        """Close everything; what was acknowledged is on disk either way.

        It is closed once, whoever asks, and to the end, even if whoever asked is cancelled.
        """
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(), name="natsd-jetstream-stop")
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        if self.engine is None:
            return
        _logger.info("Initiating JetStream Shutdown...")
        try:
            await self.engine.stop()
        except Exception:
            _logger.exception("JetStream did not close in order")
        finally:
            await self._give_up()
        _logger.info("JetStream Shutdown")

    def _prepare(self) -> JetStreamOptions:
        """The settings with everything chosen, and the directory there."""
        options = self._options.jetstream
        store_dir = self._options.store_dir or options.store_dir
        if store_dir == default_store_dir():
            own_directory(store_dir)
        if store_dir is None:
            import tempfile

            store_dir = self._temporary = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX))
        options = replace(options, store_dir=store_dir.absolute())
        make_writable(options.directory)
        if reason := shared_reason(options.directory):
            _logger.warning("JetStream: storage directory %s %s", options.directory, reason)
        return resolved(options)

    async def _give_up(self) -> None:
        self.engine = None
        if self._temporary is not None:
            import shutil

            await asyncio.to_thread(shutil.rmtree, self._temporary, ignore_errors=True)
            self._temporary = None


def own_directory(directory: Path) -> None:
    """Make the directory that nobody chose, or see that it is our own; raises JetStreamError."""
    try:
        make_private(directory)
    except OSError as error:
        raise JetStreamError(
            f"the default storage directory {_reason(error)}; choose one with -sd"
        ) from None


def make_writable(directory: Path) -> None:
    """Make the directory and see that files can be made in it; raises JetStreamError."""
    import tempfile

    try:
        refuse_foreign_link(directory)
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if isinstance(error, FileExistsError | NotADirectoryError):
            raise JetStreamError(f"storage directory is not a directory: {directory}") from None
        raise JetStreamError(f"could not create storage directory - {_reason(error)}") from None
    try:
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise JetStreamError(f"storage directory is not writable - {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """One line: the system's words behind the file's name, or the store's own."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return where + lower_first(error.strerror)
    return " ".join(str(error).split())
