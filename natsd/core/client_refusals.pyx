"""What a client and the log are told of operations that are refused, or that reach nobody.

A refused publish or subscription leaves the connection open. A violation of the protocol closes it.

Source: nats-server's `pubPermissionViolation`, `subPermissionViolation`, `replySubjectViolation`
and `processSubsOnConfigReload` (server/client.go).
"""

from libc.stdint cimport uint32_t

from natsd.core.reserved cimport is_reserved_reply, is_reserved_subject

cdef enum:
    LOGGED_BYTES = 128              # logged bytes of invalid protocol input


cdef bint may_publish(
    ClientSession session, Message* message, MatchResult result
) except -1:
    """Return whether the permissions allow a publish; `result` is the match of its subject.

    A refusal is sent to the client. The memo is kept only if the next message on this subject
    is allowed, too.
    """
    cdef Publishing allowed = session.permissions.may_publish(
        message.subject, message.subject_len, result
    )
    if allowed != ALLOWED_BY_RULES:
        session.memo = None
    if allowed == REFUSED_BY_RULES:
        refuse_publish(session, message)
        return False
    return True


cdef bint refuse_reserved(ClientSession session, Message* message) except -1:
    """Refuse a message whose subject or reply belongs to the server; return whether it does."""
    cdef str text
    if is_reserved_subject(message.subject, message.subject_len):
        refuse_publish(session, message)
        return True
    if message.reply != NULL and is_reserved_reply(message.reply, message.reply_len):
        text = text_of(message.reply[:message.reply_len])
        session.send_error(ErrorText.PUBLISH_REPLY_VIOLATION.format(text))
        session.error(f"Publish Violation - Reply {quoted(text)}")
        if session.traced is not None:
            session.traced.trace.refused(ErrorText.PUBLISH_REPLY_VIOLATION.format(text))
        return True
    return False


cdef int refuse_publish(ClientSession session, Message* message) except -1:
    """Tell the client, the log and the trace that it must not publish to this subject."""
    cdef str text = text_of(message.subject[:message.subject_len])
    session.send_error(ErrorText.PUBLISH_VIOLATION.format(text))
    session.error(f"Publish Violation - Subject {quoted(text)}")
    if session.traced is not None:
        session.traced.trace.refused(ErrorText.PUBLISH_VIOLATION.format(text))
    return 0


cdef int refuse_subscription(
    ClientSession session, bytes subject, bytes queue, bytes sid
) except -1:
    """Tell the client and the log that it must not subscribe to this subject."""
    cdef str text = text_of(subject)
    cdef str name
    if queue is None:
        session.send_error(ErrorText.SUBSCRIPTION_VIOLATION.format(text))
        name = ""
    else:
        session.send_error(ErrorText.SUBSCRIPTION_QUEUE_VIOLATION.format(text, text_of(queue)))
        name = f"Queue: {quoted(text_of(queue))}, "
    session.error(
        f"Subscription Violation - Subject {quoted(text)}, {name}SID {text_of(sid)}"
    )
    return 0


cdef int refuse_tokens(ClientSession session, bytes subject, bytes sid) except -1:
    """Tell the client and the log that the subject of a subscription has too many tokens."""
    cdef str text = text_of(subject)
    session.send_error(ErrorText.SUBSCRIPTION_TOO_MANY_TOKENS.format(text))
    session.error(
        f"Subscription Violation Too Many Tokens - Subject {quoted(text)}, SID {text_of(sid)}"
    )
    return 0


cdef int drop_forbidden(ClientSession session) except -1:
    """End the subscriptions that the permissions do not allow any more, and tell the client."""
    cdef Subscription sub
    cdef str text, name
    for sub in session.own_subscriptions():
        if session.permissions.may_subscribe(sub.subject_bytes, sub.queue_bytes):
            continue
        session.remove_subscription(sub)
        text = ErrorText.SUBSCRIPTION_VIOLATION.format(sub.subject)
        name = quoted(sub.subject)
        if sub.queue_len:
            text = ErrorText.SUBSCRIPTION_QUEUE_VIOLATION.format(sub.subject, sub.queue)
            name += f" using queue {quoted(sub.queue)}"
        session.send_error(ErrorText.SUBSCRIPTION_REMOVED.format(text, sub.sid))
        session.notice(f"Removed sub {name} (sid {quoted(sub.sid)}) - not authorized")
    return 0


cdef int close_for_violation(
    ClientSession session, Violation violation, const char* at, Py_ssize_t size
) except -1:
    """Log a protocol violation, answer it as VIOLATIONS says, and close the connection.

    Text behind a brace is not logged: it may be that of a CONNECT, which has secrets.
    """
    cdef Py_ssize_t line_len
    cdef bytes before, brace
    error, reason, logged = VIOLATIONS[violation]
    if violation == MAX_PAYLOAD:    # the received part of the headers follows the line
        line_len = line_length(at, size)
        if session.trace:
            session.trace_operation("<<-", at[:line_len].rstrip())
        if may_be_traced(at + line_len, size - line_len, session.counts_parents):
            session.trace_oversized(at[:line_len], at[line_len:size])
        logged += f": {text_of(at[:line_len].split()[-1])} vs {session.payload_max}"
    elif violation == HEADERS_NOT_SUPPORTED:
        if session.trace:
            session.trace_operation("<<-", b"HPUB " + at[:size])
    else:
        before, brace, _ = at[:min(size, <Py_ssize_t>LOGGED_BYTES)].partition(b"{")
        logged += f": {quoted(text_of(before + (brace and b'{[REDACTED]')))}"
    session.error(logged)
    if error is not None:
        session.send_error(error)
    session.endpoint.linger()
    session.endpoint.close(reason)
    return 0


cdef int answer_no_responders(ClientSession session, Message* message) except -1:
    """Send the publisher a 503 (no responders) through its own subscription to the reply."""
    cdef MatchResult result = session.sublist.lookup(message.reply, message.reply_len)
    cdef Subscription sub
    cdef uint32_t i
    cdef bytes block
    for i in range(result.plain_local.count):
        sub = plain_at(result, i)
        if sub.sink is session:
            block = b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % (
                <bytes>message.subject[:message.subject_len]
            )
            session.send_protocol(b"HMSG %b %b %d %d\r\n%b\r\n" % (
                <bytes>message.reply[:message.reply_len], sub.sid_bytes,
                len(block), len(block), block,
            ))
            break
    return 0


# Violation -> the text of the -ERR (None: none is sent), the closed reason, the logged text.
VIOLATIONS = {
    UNKNOWN_OPERATION: (
        ErrorText.UNKNOWN_PROTOCOL_OPERATION, ClosedReason.PROTOCOL_VIOLATION,
        "Client parser ERROR",
    ),
    CONTROL_LINE: (
        ErrorText.MAXIMUM_CONTROL_LINE, ClosedReason.MAXIMUM_CONTROL_LINE_EXCEEDED,
        "maximum control line exceeded",
    ),
    MAX_PAYLOAD: (
        ErrorText.MAXIMUM_PAYLOAD, ClosedReason.MAXIMUM_MESSAGE_PAYLOAD_EXCEEDED,
        "maximum payload exceeded",
    ),
    BAD_ARGUMENTS: (None, ClosedReason.PROTOCOL_VIOLATION, "Bad arguments or size"),
    HEADERS_NOT_SUPPORTED: (
        None, ClosedReason.PROTOCOL_VIOLATION, "message headers not supported",
    ),
    CONNECT_REQUIRED: (
        ErrorText.AUTHORIZATION_VIOLATION, ClosedReason.AUTHENTICATION_FAILURE,
        "authentication error",
    ),
}
