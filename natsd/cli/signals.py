"""`natsd -sl quit=4711`: sends a signal to a running server, to stop it, reopen its log or reload.

- `<signal>` alone is for the only running natsd. `=<pid>` or `=<pid file>` names one process, and
  `=12*` every natsd whose pid starts with 12.
- An error is a `SignalError` of one line.

Source: nats-server's `ProcessSignal` and `resolvePids` (server/signal.go).
"""

import os
import signal
import subprocess
from pathlib import Path
from typing import Final

from natsd.core.program import program_name

SIGNALS: Final = {
    "stop": signal.SIGKILL,
    "quit": signal.SIGINT,
    "term": signal.SIGTERM,
    "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP,
    "ldm": signal.SIGUSR2,
}


class SignalError(Exception):
    """A signal could not be sent; the text is one line for the user."""


def send_signal(request: str) -> None:
    """Send the signal of a request `<signal>[=<pid>]`. Raises SignalError."""
    command, *targets = request.split("=")
    if len(targets) > 1:
        raise SignalError(f"invalid signal parameters: [{' '.join(targets[1:])}]")
    if command not in SIGNALS:
        raise SignalError(f'unknown signal "{command}"; there are {", ".join(sorted(SIGNALS))}')
    failures = []
    for pid in _pids(targets[0] if targets else ""):
        try:
            os.kill(pid, SIGNALS[command])
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            failures.append(f'signal "{command}" {pid}: {reason}')
        except OverflowError:
            failures.append(f'signal "{command}" {pid}: no such process')
    if failures:
        raise SignalError("; ".join(failures))


def _pids(target: str) -> list[int]:
    """Return the process ids that a target (see the module's docstring) stands for."""
    target = _pid_in_file(target)
    prefix = target.removesuffix("*")
    if prefix and not prefix.isdigit():
        raise SignalError(f"invalid pid: {prefix}")
    if target == prefix and prefix:
        return [int(prefix)]
    running = _running()
    if not running:
        raise SignalError(f"no {program_name()} processes running")
    if not target and len(running) > 1:
        raise SignalError(f"multiple {program_name()} processes running: {_listed(running)}")
    return [pid for pid in running if str(pid).startswith(prefix)]


def _pid_in_file(target: str) -> str:
    """Return the content of the pid file `target`, or `target` itself if it is not a file."""
    try:
        return Path(target).read_text().strip() if target else ""
    except (OSError, UnicodeDecodeError):
        return target


def _running() -> list[int]:
    """Return the process ids of all other natsd processes, found with pgrep."""
    try:
        found = subprocess.run(
            ["pgrep", "-x", program_name()], capture_output=True, text=True, check=False
        )
    except OSError:
        raise SignalError("unable to resolve pid, try providing one") from None
    return [int(pid) for pid in found.stdout.split() if int(pid) != os.getpid()]


def _listed(pids: list[int]) -> str:
    return " ".join(map(str, pids))
