"""The stacks of this process's threads and tasks at one moment, as a profile or as text.

They are what nats-server's goroutine profile is for a Go program. The stack of a thread that runs
compiled code ends with the Python function that called it.
"""

import asyncio
import sys
import threading
import time
from collections import Counter
from types import FrameType
from typing import Final

from natsd.core.steps import at_once
from natsd.monitor.internals import STACK_FRAMES_MAX, TASKS_MAX, stacksz
from natsd.monitor.profiling.pprof import Frame, Stack, encode_profile

AS_PROFILE: Final = 0
GROUPED: Final = 1


def goroutine_profile(debug: int) -> bytes:
    """Return the stacks as a profile (`debug` 0), as text by equal stacks (1), or all (2).

    Must be called on the event loop. At most TASKS_MAX tasks are shown.
    """
    if debug not in (AS_PROFILE, GROUPED):
        return at_once(stacksz()).encode()
    stacks = Counter(_thread_stacks() + _task_stacks())
    if debug == AS_PROFILE:
        samples = {stack: (count,) for stack, count in stacks.items()}
        return encode_profile([("goroutine", "count")], samples, time_ns=time.time_ns(), period=1)
    lines = [f"goroutine profile: total {stacks.total()} (threads and tasks)"]
    for stack, count in stacks.most_common():
        lines += ["", f"{count} @", *(f"#\t{each.name}\t{each.file}:{each.line}" for each in stack)]
    return "\n".join(lines).encode() + b"\n"


def frames_of(frame: FrameType | None) -> Stack:
    """Return the innermost STACK_FRAMES_MAX frames of a stack."""
    found: list[Frame] = []
    while frame is not None and len(found) < STACK_FRAMES_MAX:
        code = frame.f_code
        found.append(Frame(code.co_qualname, code.co_filename, frame.f_lineno or 0))
        frame = frame.f_back
    return tuple(found)


def _thread_stacks() -> list[Stack]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return [
        (*frames_of(frame), Frame(f"thread {names.get(ident, '?')}"))
        for ident, frame in sys._current_frames().items()
    ]


def _task_stacks() -> list[Stack]:
    found = []
    for task in list(asyncio.all_tasks())[:TASKS_MAX]:
        frames = reversed(task.get_stack(limit=STACK_FRAMES_MAX))
        stack = tuple(frame for each in frames for frame in frames_of(each)[:1])
        found.append((*stack, Frame(f"task {task.get_name()}")))
    return found
