"""The daemon's log: nats-server's line format on the standard logging module.

    [4711] 2026/01/02 15:04:05.000000 [INF] Server is ready

- All of natsd logs to the logger "natsd" or below. A program that embeds a server configures that
  logger itself; only the daemon opens a `DaemonLog`.
- Log texts may contain input from outside: client names, subjects, paths. In every case a message
  is one line without control characters. The traceback of an exception follows on indented lines,
  so that none of them looks like a message.
- `-D` and `-V` are independent: tracing without debugging shows TRC and no DBG.
- A log file is appended to, with one write per line. Above its size limit it is renamed to
  `<file>.2026.01.02.15.04.05.000000000`, and the oldest renamed files are deleted if there are too
  many.
- Instead of a file or standard error, the lines may go to a syslog service (syslog.py).
- A log that cannot be written never stops the server: the line is lost, as in nats-server.
"""

import logging
import os
import stat
import sys
import unicodedata
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from natsd.config import Options
from natsd.config.levels import LABELS, TRACE
from natsd.server.own_files import open_own

if TYPE_CHECKING:
    from natsd.config.syslog_address import SyslogAddress

LOG_FILE_MODE: Final = 0o640
_COLORS: Final = {"INF": "32", "DBG": "36", "WRN": "0;93", "ERR": "31", "FTL": "31", "TRC": "33"}

root_logger = logging.getLogger("natsd")


class Line(logging.Formatter):
    """Formatter of `[pid] date time [LVL] text`, with or without colour and time."""

    def __init__(self, *, logtime: bool, utc: bool, color: bool) -> None:
        super().__init__()
        self._prefix = f"[{os.getpid()}] "
        self._logtime = logtime
        self._zone = UTC if utc else None
        self._labels = {
            level: f"[\x1b[{_COLORS[label]}m{label}\x1b[0m] " if color else f"[{label}] "
            for level, label in LABELS.items()
        }

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without a line end; a traceback follows on indented lines."""
        line = self._prefix
        if self._logtime:
            moment = datetime.fromtimestamp(record.created, self._zone)
            line += moment.strftime("%Y/%m/%d %H:%M:%S.%f ")
        line += self._labels.get(record.levelno, f"[{record.levelname[:3]}] ")
        line += on_one_line(record.getMessage())
        if record.exc_info:
            added = self.formatException(record.exc_info).split("\n")
            line += "".join(f"\n    {on_one_line(part)}" for part in added)
        return line


def on_one_line(text: str) -> str:
    r"""Return a text with unprintable characters except spaces as escapes, such as `\n`, `\x1b`."""
    if text.isprintable():
        return text
    return "".join(
        part if part.isprintable() or unicodedata.category(part) == "Zs" else _escaped(part)
        for part in text
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class BareLine(Line):
    """Formatter of the text alone: a syslog service adds time, program, pid and level."""

    def __init__(self) -> None:
        super().__init__(logtime=False, utc=False, color=False)
        self._prefix = ""
        self._labels = dict.fromkeys(LABELS, "")


class LevelChoice(logging.Filter):
    """Filter that passes DBG and TRC records only if that level was switched on."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self._hidden = {
            level
            for level, shown in ((logging.DEBUG, options.debug), (TRACE, options.trace))
            if not shown
        }

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is logged."""
        return record.levelno not in self._hidden


class LogFile(logging.Handler):
    """Handler that appends lines to a file, rotates a full file, and can reopen it.

    `files_max` counts the current file too; 0: no file is deleted.
    """

    def __init__(self, path: Path, size_limit_bytes: int, files_max: int) -> None:
        super().__init__()
        self._path = path
        self._size_limit_bytes = size_limit_bytes
        self._rotate_at_bytes = size_limit_bytes
        self._files_max = files_max
        self._fd = -1
        self._size_bytes = 0
        self.reopen()

    def reopen(self) -> None:
        """Open the path again, for use after the file was renamed. Raises OSError."""
        fd = open_own(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, LOG_FILE_MODE)
        self.acquire()
        self._fd, old_fd = fd, self._fd
        self._size_bytes = os.fstat(fd).st_size
        self._rotate_at_bytes = self._size_limit_bytes
        self.release()
        if old_fd >= 0:
            os.close(old_fd)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record as a line; logging calls this with the handler's lock held."""
        self._write(self.format(record))
        if self.is_full:
            self._rotate()

    @property
    def is_full(self) -> bool:
        """Whether the file is over its size limit, so that the next line rotates it."""
        return 0 < self._rotate_at_bytes < self._size_bytes

    def close(self) -> None:
        """Close the file; later lines are lost."""
        self.acquire()
        self._fd, old_fd = -1, self._fd
        self.release()
        if old_fd >= 0:
            os.close(old_fd)
        super().close()

    def _write(self, line: str) -> None:
        if self._fd < 0:
            return
        try:
            self._size_bytes += os.write(self._fd, line.encode("utf-8", "replace") + b"\n")
        except OSError:
            return  # a full disk must not stop the server

    def _rotate(self) -> None:
        """Rename the full file, open a new one, and log that there.

        If the renaming fails, the next attempt is made at twice the size.
        """
        from natsd.server.log_rotation import backup_name

        backup = backup_name(self._path, datetime.now())  # noqa: DTZ005  the name shows local time
        try:
            self._path.rename(backup)
            self.reopen()
        except OSError as error:
            self._rotate_at_bytes *= 2
            self._say(
                logging.ERROR,
                f"Unable to rotate the log file ({error.strerror}), "
                f"will attempt next rotation at size {self._rotate_at_bytes}",
            )
            return
        self._say(logging.INFO, f'Rotated log, backup saved as "{backup}"')
        if self._files_max:
            self._purge()

    def _purge(self) -> None:
        """Delete the oldest rotated files beyond `files_max`."""
        from natsd.server.log_rotation import backups_of

        for backup in backups_of(self._path)[: -(self._files_max - 1) or None]:
            try:
                backup.unlink()
            except OSError as error:
                self._say(
                    logging.ERROR,
                    f'Unable to remove backup log file "{backup.name}" ({error.strerror}), '
                    "will attempt next rotation",
                )
                return
            self._say(logging.INFO, f'Purged log file "{backup.name}"')

    def _say(self, level: int, text: str) -> None:
        """Write a line of the log itself, without the logger."""
        record = root_logger.makeRecord(root_logger.name, level, __file__, 0, text, (), None)
        self._write(self.format(record))


class LogError(Exception):
    """The log cannot be opened; the text is one line for the user."""


class DaemonLog:
    """The daemon's log, from its opening to `close`: a handler of the logger "natsd"."""

    def __init__(self, options: Options) -> None:
        """Open the log. Raises LogError. Blocks while a syslog service is looked for."""
        check_syslog(options)
        self._handler: logging.Handler = logging.NullHandler()
        self._install(_new_handler(options), options)
        if isinstance(self._handler, LogFile) and self._handler.is_full:
            root_logger.info("Rotating logfile...")

    def check(self, options: Options) -> None:
        """Raise LogError if another syslog service should get the log and is not there. Blocks."""
        if syslog_address(options) != self._syslog:
            check_syslog(options)

    def prepare(self, options: Options, undo: ExitStack) -> Callable[[], None]:
        """Open the log that the options describe, and return the function that switches to it.

        `undo` gets what closes it again if there is no switch. Raises LogError.
        """
        handler = _new_handler(options)
        undo.callback(handler.close)
        return partial(self._install, handler, options)

    def reopen(self) -> None:
        """Open the log file again, after a tool renamed it and sent SIGUSR1; log the result."""
        if not isinstance(self._handler, LogFile):
            root_logger.info("File log re-open ignored, not a file logger")
            return
        try:
            self._handler.reopen()
        except OSError as error:
            root_logger.error("File log re-open failed: %s", error)
            return
        root_logger.info("File log re-opened")

    def close(self) -> None:
        """Close the log, after its lines are written; later lines are lost."""
        root_logger.removeHandler(self._handler)
        with suppress(ValueError):  # standard error is closed already
            self._handler.flush()
        self._handler.close()

    def _install(self, handler: logging.Handler, options: Options) -> None:
        """Log with the handler, at the level of the options, and close the one before."""
        self._syslog = syslog_address(options)
        root_logger.propagate = False
        root_logger.setLevel(lowest_level(options))
        root_logger.addHandler(handler)
        before, self._handler = self._handler, handler
        root_logger.removeHandler(before)
        before.close()


def syslog_address(options: Options) -> "SyslogAddress | None":
    """Return the address of the syslog service that gets the log; None: a file or terminal does."""
    if options.log_file or not (options.remote_syslog or options.syslog):
        return None
    from natsd.config.syslog_address import LOCAL, read_syslog_address

    return read_syslog_address(options.remote_syslog) if options.remote_syslog else LOCAL


def check_syslog(options: Options) -> None:
    """Raise LogError if the log should go to a syslog service and there is none. Blocks."""
    address = syslog_address(options)
    if address is None:
        return
    from natsd.server.syslog import connect

    try:
        connect(address).close()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise LogError(f"error connecting to syslog: dial {address}: {reason}") from None


def _new_handler(options: Options) -> logging.Handler:
    """Return a handler as the options describe it. Raises LogError."""
    handler: logging.Handler
    address = syslog_address(options)
    if options.log_file:
        try:
            handler = LogFile(options.log_file, options.log_size_limit, options.logfile_max_num)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            text = f"error opening log file: open {options.log_file}: {reason}"
            raise LogError(text) from None
    elif address is not None:
        from natsd.server.syslog import SyslogHandler

        handler = SyslogHandler(address)
    else:
        handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(BareLine() if address else _line_of(options))
    handler.addFilter(LevelChoice(options))
    return handler


def _line_of(options: Options) -> Line:
    color = options.log_file is None and _is_terminal(sys.stderr.fileno())
    return Line(logtime=options.logtime, utc=options.logtime_utc, color=color)


def lowest_level(options: Options) -> int:
    """Return the level of the logger "natsd" with which all wanted lines are logged."""
    if options.trace:
        return TRACE
    return logging.DEBUG if options.debug else logging.INFO


def _is_terminal(fd: int) -> bool:
    """Return whether a descriptor is a character device, which is nats-server's test too."""
    try:
        return stat.S_ISCHR(os.fstat(fd).st_mode)
    except OSError:
        return False
