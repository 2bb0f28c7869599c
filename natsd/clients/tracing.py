"""The decision whether a client's message is traced: by its headers and its account's settings.

- `Nats-Trace-Dest` always requests a trace. A sampled `traceparent` requests one if the account has
  `msg_trace`, for the share of messages that `sampling` says.
- A client may send a trace only to a subject that it may publish to; permitted responses do not
  count. With another destination the message is refused. The account's own destination is a setting
  and needs no permission.
- A message with `Nats-Trace-Only` is never delivered, even if no trace can be sent.

Source: ADR-41; nats-server's `initMsgTrace` (server/msgtrace.go).
"""

import secrets
from typing import Final, NamedTuple, Protocol

from natsd.accounts import Account
from natsd.accounts.message_trace import (
    MessageTrace,
    TracedClient,
    TraceRequest,
    TraceSource,
    with_trace_disabled,
)
from natsd.core.network import is_reserved
from natsd.core.quoting import quoted
from natsd.core.reasons import ErrorText
from natsd.core.routing import PermissionRules, is_valid_publish

PER_CENT: Final = 100


class TracedPublisher(TracedClient, Protocol):
    """The client that published the message."""

    account: Account | None

    @property
    def host(self) -> TraceSource:
        """The server."""
        ...

    @property
    def permission_rules(self) -> PermissionRules | None:
        """What the client may do; None: everything."""
        ...

    def error(self, text: str) -> None:
        """Log at error level."""

    def send_error(self, text: str) -> None:
        """Send the client an -ERR with this text."""


class Decision(NamedTuple):
    """The treatment of a message whose headers may request a trace.

    With neither `trace` nor `is_dropped`, the message is published with the header block `headers`,
    which forbids other servers to trace it.
    """

    trace: MessageTrace | None = None
    headers: bytes = b""
    is_dropped: bool = False  # the message is not published


DROPPED: Final = Decision(is_dropped=True)


def decide(
    client: TracedPublisher, subject: bytes, block: bytes, size: int, error: str = ""
) -> Decision | None:
    """Return how to treat a message; None: it is published unchanged.

    `block` is its header block and `size` that of headers and payload in bytes. `error` is the
    reason why the server refuses the message, or empty; the trace records it.
    """
    account = client.account
    request = TraceRequest.read(block)
    if request is None or account is None:
        return None
    unable = DROPPED if request.is_only else None
    if request.origin_account:
        client.error(
            'Message tracing disabled because of header "Nats-Trace-Origin-Account" '
            f"with value={quoted(request.origin_account)}"
        )
        return unable or Decision(headers=with_trace_disabled(block))
    destination = request.destination
    if not destination:
        if account.msg_trace is None:
            return None
        if secrets.randbelow(PER_CENT) >= account.msg_trace.sampling:
            return Decision(headers=with_trace_disabled(block))
        destination = account.msg_trace.dest
    if not is_valid_publish(destination):
        client.error(
            f"Destination {quoted(destination)} is not valid, won't be able to trace events"
        )
        return unable
    if is_reserved(destination) or not _may_name(client, request.destination):
        client.send_error(ErrorText.PUBLISH_VIOLATION.format(destination))
        client.error(f"Publish Violation - Subject {quoted(destination)}")
        return DROPPED
    return Decision(_begin(client, account, destination, request, subject, size, error))


def _may_name(client: TracedPublisher, destination: str) -> bool:
    """Return whether a client may have its trace sent there; empty: it names no destination."""
    rules = client.permission_rules
    return not destination or rules is None or rules.may_publish(destination)


def _begin(
    client: TracedPublisher,
    account: Account,
    destination: str,
    request: TraceRequest,
    subject: bytes,
    size: int,
    error: str,
) -> MessageTrace:
    """Return a trace with its ingress event."""
    trace = MessageTrace(account, destination, request, size, client.host)
    trace.ingress(client, subject, error)
    return trace
