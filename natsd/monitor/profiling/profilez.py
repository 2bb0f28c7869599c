"""The answer to `PROFILEZ`: a profile as the system account asks for it.

Source: nats-server's `Server.profilez` (server/monitor.go).
"""

import base64
from typing import Any, Final

from natsd.core.durations import format_duration_ns
from natsd.monitor.profiling.cpu import ProfileInUse, cpu_profile
from natsd.monitor.profiling.heap import heap_profile
from natsd.monitor.profiling.stacks import goroutine_profile

DURATION_S_MAX: Final = 15
HEAP_S: Final = 1


async def profilez(name: str, debug: int, duration_ns: int) -> dict[str, Any]:
    """Return `profile` in base64, or null, and `error`."""
    try:
        profile = await _profile(name, debug, duration_ns)
    except _Refused as error:
        return {"profile": None, "error": str(error)}
    except ProfileInUse as error:
        return {"profile": None, "error": f"Failed to start {name.upper()} profile: {error}"}
    return {"profile": base64.b64encode(profile).decode(), "error": ""}


class _Refused(Exception):
    """There is no such profile."""


async def _profile(name: str, debug: int, duration_ns: int) -> bytes:
    seconds = duration_ns / 1e9
    if not name:
        raise _Refused("Profile name not specified")
    is_heap = name in ("heap", "allocs")
    has_duration = name == "cpu" or (is_heap and seconds)
    if has_duration and not 0 < seconds <= DURATION_S_MAX:
        shown = format_duration_ns(duration_ns)
        raise _Refused(f"Duration {shown} should be between 0s and {DURATION_S_MAX}s")
    if name == "cpu":
        return await cpu_profile(seconds)
    if is_heap:
        return await heap_profile(seconds or HEAP_S)
    if name == "goroutine":
        return goroutine_profile(debug)
    raise _Refused(f'Profile "{name}" not found')
