"""What a backup or a restore raises: each text is one line."""

from __future__ import annotations


class BackupError(Exception):
    """The operation cannot be done or continued; the message is the reason."""


class DamagedPiece(BackupError):
    """A file of a backup is missing, or does not hold what it should."""


class StreamGone(BackupError):
    """The stream, or its account, does not exist any more."""


class AccountGone(StreamGone):
    """The account has no JetStream."""


class StreamFailed(BackupError):
    """One stream could not be copied; the others can."""
