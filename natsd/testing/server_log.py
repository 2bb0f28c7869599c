"""The log of one server: of its process from a file, or of a thread from Python's logging.

While a server runs in a thread, a handler of the logger "natsd" gives each record to the log of the
server that made it, which the record's context names. These records go no further, unless that is
wanted, so that pytest's `caplog` and a program's own logging do not see them. Records of other
servers in the process go where they would go without the handler.
"""

import logging
import threading
from abc import ABC, abstractmethod
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from natsd.config import Options
from natsd.server.log import LevelChoice, Line, lowest_level, root_logger

ERROR_LABELS: Final = ("[ERR] ", "[FTL] ")
HIDDEN: Final = -1
"""Level of a record that no other handler takes. pytest adds its handlers to loggers that do not
propagate, too."""


class ServerLog(ABC):
    """The lines that a server has logged so far, in nats-server's format."""

    @property
    @abstractmethod
    def text(self) -> str:
        """All that was logged; empty: nothing was."""

    @property
    def lines(self) -> list[str]:
        """The lines; the traceback of an exception follows its line on indented ones."""
        return self.text.splitlines()

    @property
    def errors(self) -> list[str]:
        """The lines of errors, with the lines of their tracebacks."""
        found: list[str] = []
        is_error = False
        for line in self.lines:
            if not line.startswith(" "):
                is_error = any(label in line for label in ERROR_LABELS)
            if is_error:
                found.append(line)
        return found

    @abstractmethod
    def keep(self) -> None:
        """Keep what was logged, for use after the server's directory is removed."""

    def __contains__(self, text: str) -> bool:
        return text in self.text

    def __str__(self) -> str:
        return self.text


class FileLog(ServerLog):
    """The log of a server that is a process: its standard error, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: str | None = None

    def keep(self) -> None:
        """Keep what was logged, for use after the server's directory is removed."""
        self._kept = self.text

    @property
    def text(self) -> str:
        """All that was logged; empty: nothing was."""
        if self._kept is not None:
            return self._kept
        try:
            return self._path.read_text("utf-8", "replace")
        except FileNotFoundError:
            return ""


class ThreadLog(ServerLog):
    """The log of a server that runs in a thread of this process, from `open` to `close`.

    With `propagates` its records go to the program's logging too.
    """

    def __init__(self, *, propagates: bool = False) -> None:
        self.propagates = propagates
        self.level = logging.INFO
        self._lines: list[str] = []
        self._line: logging.Formatter | None = None
        self._choice: logging.Filter | None = None

    @property
    def text(self) -> str:
        """All that was logged; empty: nothing was."""
        return "".join(f"{line}\n" for line in list(self._lines))

    def keep(self) -> None:
        """Do nothing: the lines are in memory."""

    def open(self, options: Options) -> None:
        """Take the records of the current context, at the level of the options, from here on."""
        self.enter()
        self.follow(options)
        _router.add(self)

    def enter(self) -> None:
        """Take the records of the current context, and of the tasks that it begins."""
        _current.set(self)

    def follow(self, options: Options) -> None:
        """Log as the options say, of a start or a reload."""
        self.level = lowest_level(options)
        self._line = Line(logtime=options.logtime, utc=options.logtime_utc, color=False)
        self._choice = LevelChoice(options)
        _router.renew_level()

    def close(self) -> None:
        """Take no more records."""
        _router.remove(self)

    def take(self, record: logging.LogRecord) -> None:
        """Add the line of a record, if its level is wanted."""
        assert self._line is not None
        assert self._choice is not None
        if self._choice.filter(record):
            self._lines.append(self._line.format(record))


_current: ContextVar[ThreadLog | None] = ContextVar("natsd_testing_log", default=None)
"""The log of the server that runs in this context."""


class _Router(logging.Handler):
    """Handler that gives each record to the log of the server that made it."""

    def __init__(self) -> None:
        super().__init__()
        self._logs: list[ThreadLog] = []
        self._changing = threading.RLock()
        self._level_before = logging.NOTSET

    def add(self, log: ThreadLog) -> None:
        """Route records to the log; the first one changes the logger "natsd"."""
        with self._changing:
            if not self._logs:
                self._level_before = root_logger.level
                root_logger.addHandler(self)
            self._logs.append(log)
            self.renew_level()

    def remove(self, log: ThreadLog) -> None:
        """Route no more records to the log; the last one leaves the logger as it was."""
        with self._changing:
            if log not in self._logs:
                return
            self._logs.remove(log)
            self.renew_level()
            if not self._logs:
                root_logger.removeHandler(self)
                root_logger.setLevel(self._level_before)

    def renew_level(self) -> None:
        """Set the logger to the lowest level that a log or the program wants."""
        with self._changing:
            if self._logs:
                wanted = [log.level for log in self._logs]
                root_logger.setLevel(min(*wanted, self._level_elsewhere()))

    def emit(self, record: logging.LogRecord) -> None:
        """Give the record to its log; hide it from the program's handlers unless it is theirs."""
        log = _current.get()
        if log is not None:
            log.take(record)
        is_hidden = not log.propagates if log else record.levelno < self._level_elsewhere()
        if is_hidden:
            record.levelno = HIDDEN

    def _level_elsewhere(self) -> int:
        """Return the level that records of other servers would need without this handler."""
        if self._level_before != logging.NOTSET or root_logger.parent is None:
            return self._level_before
        return root_logger.parent.getEffectiveLevel()


_router: Final = _Router()
