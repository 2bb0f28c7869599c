"""Whether a client's message is traced: what its headers ask, and what its account allows.

- `Nats-Trace-Dest` asks for itself. A sampled `traceparent` asks where the account has `msg_trace`,
  as often as its `sampling` says.
- A trace goes where the client itself might publish; to any other subject it is refused, and the
  message with it.
- A message with `Nats-Trace-Only` is never delivered, even where no trace can be sent.

Source: nats-server 2.14 reference 3.7; ADR-41.
"""

import secrets
from typing import TYPE_CHECKING, Final, NamedTuple

from natsd.accounts import Account
from natsd.accounts.message_trace import MessageTrace, TraceRequest, with_trace_disabled
from natsd.core.quoting import quoted
from natsd.core.reasons import ErrorText
from natsd.core.subject import is_valid_publish
from natsd.core.tracing import is_reserved

if TYPE_CHECKING:
    from natsd.clients.client import Client

PER_CENT: Final = 100


class Decision(NamedTuple):
    """What is to be done with a message. With neither a trace nor `is_dropped` it is published
    with the header block that stands here, which keeps others from tracing it."""

    trace: MessageTrace | None = None
    headers: bytes = b""
    is_dropped: bool = False


DROPPED: Final = Decision(is_dropped=True)


def decide(
    client: "Client", subject: bytes, block: bytes, size: int, error: str = ""
) -> Decision | None:
    """None: the message is published as it is. `error`: why it is not taken from its publisher."""
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
    if is_reserved(destination):
        client.send_error(ErrorText.PUBLISH_VIOLATION.format(destination))
        client.error(f"Publish Violation - Subject {quoted(destination)}")
        return DROPPED
    return Decision(_begin(client, account, destination, request, subject, size, error))


def _begin(
    client: "Client",
    account: Account,
    destination: str,
    request: TraceRequest,
    subject: bytes,
    size: int,
    error: str,
) -> MessageTrace:
    trace = MessageTrace(account, destination, request, size, client.host)
    trace.ingress(client, subject, error)
    return trace
