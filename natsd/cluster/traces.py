"""The decision whether a message that another server forwarded is traced.

- The server to which the client is connected has decided that already: if a sampled `traceparent`
  was not drawn, it has disabled the trace. So nothing is drawn here.
- A message with `Nats-Trace-Only` is never delivered, even if no trace can be sent.

Source: ADR-41; nats-server's `initMsgTrace` (server/msgtrace.go).
"""

from typing import Protocol

from natsd.accounts import Account
from natsd.accounts.message_trace import (
    MessageTrace,
    TracedRoute,
    TraceRequest,
    TraceSource,
    with_trace_disabled,
)
from natsd.clients.tracing import DROPPED, Decision
from natsd.core.network import is_reserved
from natsd.core.quoting import quoted
from natsd.core.routing import is_valid_publish


class ForwardingRoute(TracedRoute, Protocol):
    """The connection to the server that forwarded the message."""

    def error(self, text: str) -> None:
        """Log at error level."""


def decide(
    route: ForwardingRoute,
    source: TraceSource,
    account: Account,
    subject: bytes,
    block: bytes,
    size: int,
) -> Decision | None:
    """Return how to treat a message of the peer; None: it is delivered unchanged.

    `block` is its header block and `size` that of headers and payload in bytes.
    """
    request = TraceRequest.read(block)
    if request is None:
        return None
    unable = DROPPED if request.is_only else None
    if request.origin_account:
        route.error(
            'Message tracing disabled because of header "Nats-Trace-Origin-Account" '
            f"with value={quoted(request.origin_account)}"
        )
        return unable or Decision(headers=with_trace_disabled(block))
    destination = request.destination
    if not destination:
        if account.msg_trace is None:
            return None
        destination = account.msg_trace.dest
    if not is_valid_publish(destination):
        route.error(
            f"Destination {quoted(destination)} is not valid, won't be able to trace events"
        )
        return unable
    if is_reserved(destination):
        route.error(f"Publish Violation - Subject {quoted(destination)}")
        return DROPPED
    trace = MessageTrace(account, destination, request, size, source, request.hop)
    trace.routed_ingress(route, subject)
    return Decision(trace)
