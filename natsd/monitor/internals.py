"""`/ipqueuesz`, `/raftz`, `/stacksz`, `/debug/vars`: the inner state of the process.

The endpoints are named as in nats-server; their contents are those of this process: queues of the
JetStream API, threads and tasks of Python, and memory as the system and Python count it.
"""

import asyncio
import gc
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, Final

from natsd.core.steps import Steps
from natsd.monitor.observed import ObservedServer
from natsd.monitor.process_usage import resident_bytes

NO_RAFT: Final = "No Raft nodes registered"
STACK_FRAMES_MAX: Final = 64
TASKS_MAX: Final = 1000
_SECRET_FLAGS: Final = ("user", "pass", "auth")
_PROGRAMS: Final = ("natsd", "nats-server", "__main__.py")


def ipqueuesz(server: ObservedServer, *, every: bool, prefix: str) -> dict[str, dict[str, int]]:
    """Return the answer to `/ipqueuesz`: the queues whose name begins with `prefix`.

    Empty queues are left out unless `every` is set.
    """
    engine = server.jetstream
    waiting = engine.api.waiting if engine is not None else {}
    return {
        name: {"pending": count}
        for name, count in sorted(waiting.items())
        if (every or count) and name.startswith(prefix)
    }


def stacksz() -> Steps[str]:
    """Return, in steps, the answer to `/stacksz`: the stack of each thread and of each task."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        f"thread {ident} [{names.get(ident, '?')}]:\n" + "".join(traceback.format_stack(frame))
        for ident, frame in sys._current_frames().items()
    ]
    tasks = list(asyncio.all_tasks())
    for task in tasks[:TASKS_MAX]:
        yield
        frames = task.get_stack(limit=STACK_FRAMES_MAX)
        lines = "".join("".join(traceback.format_stack(frame, 1)) for frame in frames)
        parts.append(f"task {task.get_name()}:\n{lines}")
    if len(tasks) > TASKS_MAX:
        parts.append(f"and {len(tasks) - TASKS_MAX} more tasks\n")
    return "\n".join(parts)


def expvarz() -> dict[str, Any]:
    """Return the answer to `/debug/vars`, with those of Go's memory statistics that Python has."""
    collections = gc.get_stats()
    resident = resident_bytes()
    return {
        "cmdline": command_line(sys.argv),
        "memstats": {
            "Alloc": resident,
            "Sys": resident,
            "HeapAlloc": resident,
            "HeapSys": resident,
            "HeapObjects": sys.getallocatedblocks(),
            "NumGC": sum(each["collections"] for each in collections),
            "EnableGC": gc.isenabled(),
            "DebugGC": bool(gc.get_debug()),
        },
    }


def command_line(arguments: list[str]) -> list[str]:
    """Return the arguments without credentials.

    For a program that embeds a server only the program's name is returned.
    """
    program, *rest = arguments or [""]
    if Path(program).name not in _PROGRAMS:
        return [program]
    shown = [program]
    is_secret = False
    for argument in rest:
        name, equals, _ = argument.lstrip("-").partition("=")
        names_secret = argument.startswith("-") and name in _SECRET_FLAGS
        if is_secret:
            shown.append("[REDACTED]")
        elif names_secret and equals:
            shown.append(argument.partition("=")[0] + "=[REDACTED]")
        else:
            shown.append(argument)
        is_secret = names_secret and not equals and not is_secret
    return shown
