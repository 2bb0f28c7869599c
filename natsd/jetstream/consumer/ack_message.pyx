"""Acknowledgements on the wire: the subject names the message, the body says what to do.

    $JS.ACK.<stream>.<consumer>.<delivered>.<sseq>.<cseq>.<ts ns>.<pending>
    $JS.ACK.<domain|_>.<account hash>.<stream>.<consumer>.<delivered>.<sseq>.<cseq>.<ts>.<pending>…

    "" +ACK +OK      acknowledged
    -NAK [delay]     deliver it again, soon or after `{"delay": ns}` or a Go duration
    +WPI             in progress: begin to wait anew
    +NXT [request]   acknowledged, and the next one, or as a pull request says
    +TERM [reason]   never deliver it again

Nothing here knows a consumer: the caller compares the names in a subject with those of the
consumer, and trusts no number. A token that is not a number becomes NO_NUMBER, which no message
has.

Source: ADR-15; nats-server's `processAck` and `ackReplyInfo`.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memchr, memcmp


from natsd.jetstream.consumer.slow_json import nak_delay_ns

cdef enum:
    SEQUENCE_DIGITS_MAX = 18
    TIME_DIGITS_MAX = 19        # digits of nanoseconds up to the year 2262
    TOKENS_V1 = 9
    LEAD_BYTES = 8              # "$JS.ACK."


cdef uint64_t token_value(Token* token, Py_ssize_t digits_max=SEQUENCE_DIGITS_MAX) noexcept nogil:
    cdef uint64_t value = 0
    cdef Py_ssize_t at
    if not 0 < token.length <= digits_max:
        return NO_NUMBER
    for at in range(token.length):
        if not c"0" <= token.text[at] <= c"9":
            return NO_NUMBER
        value = value * 10 + <uint64_t> (token.text[at] - c"0")
    return value


cdef int split_ack_subject(
    const char* subject, Py_ssize_t length, Token* tokens
) noexcept nogil:
    cdef const char* at = subject + LEAD_BYTES
    cdef const char* end = subject + length
    cdef const char* dot
    cdef int count = 2          # "$JS" and "ACK"
    if length <= LEAD_BYTES or memcmp(subject, b"$JS.ACK.", LEAD_BYTES) != 0:
        return 0
    while count < TOKENS_V2:
        dot = <const char*> memchr(at, c".", end - at)
        tokens[count].text = at
        tokens[count].length = (end if dot == NULL else dot) - at
        count += 1
        if dot == NULL:
            break
        at = dot + 1
    if count != TOKENS_V1 and count < TOKENS_V2:
        return 0
    return 2 if count == TOKENS_V1 else 4


cdef bint parse_ack_subject(
    const char* subject, Py_ssize_t length, AckMessage* out
) noexcept nogil:
    cdef Token[TOKENS_V2] tokens
    cdef int first = split_ack_subject(subject, length, tokens)
    if first == 0:
        return False
    out.stream = tokens[first].text
    out.stream_len = tokens[first].length
    out.consumer = tokens[first + 1].text
    out.consumer_len = tokens[first + 1].length
    out.deliveries = token_value(&tokens[first + 2])
    out.sequence = token_value(&tokens[first + 3])
    out.consumer_sequence = token_value(&tokens[first + 4])
    return True


cdef bint parse_delivery(
    const char* reply, Py_ssize_t length, Delivery* out
) noexcept nogil:
    cdef Token[TOKENS_V2] tokens
    cdef int first = split_ack_subject(reply, length, tokens)
    if first == 0:
        return False
    out.consumer = tokens[first + 1].text
    out.consumer_len = tokens[first + 1].length
    out.deliveries = token_value(&tokens[first + 2])
    out.sequence = token_value(&tokens[first + 3])
    out.consumer_sequence = token_value(&tokens[first + 4])
    out.time_ns = <int64_t> token_value(&tokens[first + 5], TIME_DIGITS_MAX)
    out.pending = token_value(&tokens[first + 6])
    return (
        out.deliveries != NO_NUMBER and out.sequence != NO_NUMBER and out.time_ns >= 0
        and out.consumer_sequence != NO_NUMBER and out.pending != NO_NUMBER
    )


cdef void parse_ack_body(const char* body, Py_ssize_t length, AckMessage* out) noexcept nogil:
    cdef Py_ssize_t word = 4
    out.kind = OTHER
    if length == 0 or length == 4 and memcmp(body, b"+ACK", 4) == 0:
        out.kind = ACK
    elif length == 3 and memcmp(body, b"+OK", 3) == 0:
        out.kind = ACK
    elif length >= 4 and memcmp(body, b"+NXT", 4) == 0:
        out.kind = NEXT
    elif length >= 4 and memcmp(body, b"-NAK", 4) == 0:
        out.kind = NAK
    elif length == 4 and memcmp(body, b"+WPI", 4) == 0:
        out.kind = PROGRESS
    elif length >= 5 and memcmp(body, b"+TERM", 5) == 0:
        out.kind = TERM
        word = 5
    out.argument = body + min(word, length)
    out.argument_len = max(0, length - word)


cdef bytes trimmed(const char* text, Py_ssize_t length):
    return text[:length].strip(b" \t\n\v\f\r")


cdef bint parse_nak_delay(
    const char* argument, Py_ssize_t length, int64_t* delay_ns
) except -1:
    cdef FlatObject walk
    cdef FlatPair pair
    cdef FlatStep step
    cdef bytes text
    walk.at = argument
    walk.end = argument + length
    walk.is_open = False
    step = flat_next(&walk, &pair)
    if (
        step == FLAT_PAIR and pair.kind == FLAT_NUMBER and pair.key_len == 5
        and memcmp(pair.key, b"delay", 5) == 0 and flat_next(&walk, &pair) == FLAT_END
    ):
        delay_ns[0] = pair.number
        return True
    text = trimmed(argument, length)
    delay = nak_delay_ns(text) if text else None
    if delay is None:
        return False
    delay_ns[0] = delay
    return True


# For tests

def parse_ack(bytes subject, bytes body):
    """Return the parts of an acknowledgement, or None if it is of another kind.

    The parts are kind, stream, consumer, deliveries, stream sequence, consumer sequence and
    argument; a number is None if its token is not a number.
    """
    cdef AckMessage ack
    if not parse_ack_subject(subject, len(subject), &ack):
        return None
    parse_ack_body(body, len(body), &ack)
    kinds = ("ack", "nak", "progress", "next", "term", "other")
    return (
        kinds[<int> ack.kind], ack.stream[:ack.stream_len], ack.consumer[:ack.consumer_len],
        None if ack.deliveries == NO_NUMBER else ack.deliveries,
        None if ack.sequence == NO_NUMBER else ack.sequence,
        None if ack.consumer_sequence == NO_NUMBER else ack.consumer_sequence,
        ack.argument[:ack.argument_len],
    )


def nak_delay(bytes argument):
    """Return the delay in ns, or None if the argument has none."""
    cdef int64_t delay_ns = 0
    return delay_ns if parse_nak_delay(argument, len(argument), &delay_ns) else None
