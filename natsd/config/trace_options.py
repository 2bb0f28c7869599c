"""The settings of an account's `msg_trace`, also called `trace_dest`.

They are a subject, or a mapping of `dest` and `sampling`; `sampling` is a number of per cent, or a
text such as `25%`.

Source: nats-server's `parseAccountMsgTrace` (server/opts.go); ADR-41.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from natsd.config.sections import section_of
from natsd.config.settings import OptionsError, Settings, text, whole
from natsd.core.routing import is_valid_publish


@dataclass(frozen=True, slots=True, kw_only=True)
class MsgTraceOptions(Settings):
    """Tracing of an account's messages that have a sampled `traceparent` header."""

    dest: str = text("", "subject that traces are published to; empty: there are none")
    sampling: int = whole(100, 1, 100, "how many of 100 such messages are traced")

    def check(self) -> None:
        """Check settings that depend on each other. Raises OptionsError."""
        if self.dest and not is_valid_publish(self.dest):
            raise OptionsError(f"Trace destination {self.dest!r} is not valid")


def read_msg_trace(given: object) -> MsgTraceOptions:
    """Return the settings from a subject or a mapping. Raises OptionsError."""
    if isinstance(given, str):
        return MsgTraceOptions(dest=given)
    if isinstance(given, Mapping):
        given = {name: _without_per_cent(str(name), value) for name, value in given.items()}
    return section_of(MsgTraceOptions, given)


def _without_per_cent(name: str, value: object) -> object:
    return (
        value.removesuffix("%") if name.lower() == "sampling" and isinstance(value, str) else value
    )
