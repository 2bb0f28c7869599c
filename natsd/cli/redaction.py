"""Secrets in the command line: they are replaced in `sys.argv` and in the title of the process.

    natsd -user a -pass b -routes nats://u:p@host:1
    natsd -user [REDACTED] -pass [REDACTED] -routes nats://[REDACTED]@host:1

Source: nats-server's `RedactArgs` (server/opts.go). Unlike there, what other users of the machine
see (`ps`) is redacted too, where the system lets a process write its title.
"""

import re
import sys
from typing import Final

from natsd.config.secret_texts import REDACTED, without_secrets

_SECRET: Final = re.compile("-{1,2}(user|pass|auth)")
_URLS: Final = re.compile("-{1,2}(routes|cluster|cluster_listen)")


def redact_command_line(arguments: list[str]) -> None:
    """Replace secrets in the arguments, and in the title of this process."""
    before = list(arguments)
    redact(arguments)
    if arguments != before:
        _retitle(before, arguments)


def redact(arguments: list[str]) -> None:
    """Replace secrets in the arguments, in place."""
    for index, argument in enumerate(list(arguments)):
        flag, equals, value = argument.partition("=")
        is_secret, is_url = _SECRET.fullmatch(flag), _URLS.fullmatch(flag)
        if not (is_secret or is_url):
            continue
        at = index if equals else index + 1
        if at == len(arguments):
            continue
        text = value if equals else arguments[at]
        shown = REDACTED if is_secret else without_secrets(text)
        arguments[at] = f"{flag}={shown}" if equals else shown


def _retitle(before: list[str], after: list[str]) -> None:
    """Overwrite the arguments in the memory that the system shows as the title (Linux)."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        title = ctypes.string_at(start, end - start)
    except (OSError, ValueError, IndexError):
        return
    for old, new in zip(before, after, strict=True):
        if old != new:
            title = _replaced(title, old.encode(errors="surrogateescape"), new.encode())
    ctypes.memmove(start, title, end - start)


def _replaced(title: bytes, old: bytes, new: bytes) -> bytes:
    """Return the title with one argument replaced, of the same length as before."""
    marked = b"\0" + old + b"\0"
    at = title.find(marked)
    if at < 0:
        return title
    return title[: at + 1] + new[: len(old)].ljust(len(old), b" ") + title[at + 1 + len(old) :]
