"""What differs between two configurations, one line for each difference.

max_payload: 1048576 -> 2048
accounts.A.users.bob: added
port: 4222 -> 4333                          (needs a restart)
authorization.password: [REDACTED] -> [REDACTED]
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any, Final

from natsd.config.auth_options import UserOptions
from natsd.config.changes import diff_options
from natsd.config.jwt_texts import is_jwt
from natsd.config.options import Options
from natsd.config.secret_texts import REDACTED, without_secrets
from natsd.core.durations import format_duration

_SHOWN_MAX: Final = 120


def differences(old: Options, new: Options) -> list[str]:
    """Return a line for each setting that differs, in the order of the settings."""
    lines = []
    for change in diff_options(old, new):
        note = "  (needs a restart)" if change.needs_restart else ""
        if change.is_secret:
            lines.append(f"{change.name}: {REDACTED} -> {REDACTED}{note}")
        else:
            lines.extend(line + note for line in _between(change.name, change.old, change.new))
    return lines


def shown(value: Any) -> str:
    """Return a value in a few words, without secrets."""
    if value is None or value in ("", ()):
        return "not given"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, str):
        return f"JWT {value[:12]}…" if is_jwt(value) else without_secrets(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(shown, value))}]"
    if is_dataclass(value):
        return "{" + ", ".join(_given(value)) + "}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {shown(each)}" for name, each in value.items()) + "}"
    return str(value)


def _given(value: Any) -> Iterator[str]:
    """Yield the settings of a section that are not the defaults."""
    for setting in fields(value):
        held = getattr(value, setting.name)
        if held != setting.default:
            is_secret = "kind" in setting.metadata and setting.metadata["kind"].is_secret
            yield f"{setting.name}: {REDACTED if is_secret else shown(held)}"


def _between(name: str, old: Any, new: Any) -> Iterator[str]:
    """Yield the differences between two values of one setting."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        yield from _between_names(name, old, new)
    elif _are_users(old) and _are_users(new):
        yield from _between_names(
            name, {user.login: user for user in old}, {user.login: user for user in new}
        )
    elif is_dataclass(old) and type(old) is type(new):
        for setting in fields(old):
            before, after = getattr(old, setting.name), getattr(new, setting.name)
            below = f"{name}.{setting.name}"
            if before == after:
                continue
            if "kind" in setting.metadata and setting.metadata["kind"].is_secret:
                yield f"{below}: {REDACTED} -> {REDACTED}"
            else:
                yield from _between(below, before, after)
    else:
        yield f"{name}: {_short(old)} -> {_short(new)}"


def _between_names(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for each in (*old, *(added for added in new if added not in old)):
        below = f"{name}.{each}"
        if each not in new:
            yield f"{below}: removed"
        elif each not in old:
            yield f"{below}: added"
        elif old[each] != new[each]:
            yield from _between(below, old[each], new[each])


def _are_users(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(each, UserOptions) for each in value)


def _short(value: Any) -> str:
    text = shown(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"
