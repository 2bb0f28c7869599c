"""`/healthz`: whether the server serves.

A server that answers at all accepts connections. JetStream, whose state is what the parameters ask
about, is not there yet; nats-server without JetStream skips those checks too.
"""

from typing import Any

from natsd.monitor.query import Query

_FLAGS = ("js-enabled", "js-enabled-only", "js-server-only", "js-meta-only")


def healthz(query: Query) -> tuple[int, dict[str, Any]]:
    """Status code and answer of `/healthz`; raises `BadParameter`."""
    for flag in _FLAGS:
        query.flag(flag)
    details = query.flag("details")
    for part, whole in (("stream", "account"), ("consumer", "stream")):
        if query.text(part) and not query.text(whole):
            return 400, _failure(
                f'"{whole}" must not be empty when checking {part} health', details
            )
    return 200, {"status": "ok"}


def _failure(text: str, details: bool) -> dict[str, Any]:
    if details:
        return {"status": "error", "errors": [{"type": "BAD_REQUEST", "error": text}]}
    return {"status": "error", "error": text}
