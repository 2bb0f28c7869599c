"""Why the logs of the RAFT groups cannot be opened or written."""

from pathlib import Path

from natsd.raft.errors import RaftError


class LogsUnreadableError(RaftError):
    """A file of the logs is not understood; the text is one line for the user."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


class LogsFailedError(RaftError):
    """A write or sync failed: nothing more is written until the logs are opened again."""
