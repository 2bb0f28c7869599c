"""The service import: the sink of a request's subject in the importing account.

    requestor in A ─▶ SubList of A: my.svc                 SubList of B: svc ─▶ responder in B
                                      └─ ServiceImportSink ─▶
                                           │ subject:  my.svc ─▶ svc, then B's subject mappings
                                           │ reply:    a new one in B (account_entry.pyx)
                                           └ headers:  Nats-Request-Info: {"acc":"A","rtt":…}

Promise
- The request is delivered at once, within the publish; if nobody takes it, the publisher gets its
  503 (no responders) as for a subject without subscriptions.
- A message passes through the imports of one export once: services that import each other cannot
  send it in a circle. Services may be imported through any number of accounts.
- The header is the server's own statement. It comes first, and what a client sent that any
  receiver could read as this header, or as a continuation of it, is left out.
- A request that another server received is not imported here: that server imports it itself.
- A small request makes no Python object but its reply.

Source: nats-server's `processServiceImport` (server/client.go).
"""

import re

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from natsd.core.network cimport (
    BY_REFERENCE_BYTES, ClientSession, TracedMessage, distribute, distribute_traced, with_headers,
)
from natsd.core.routing cimport (
    Hop, MatchResult, Message, Origin, Sink, SubjectMemo, SubjectTransform, Subscription,
    hash_name, is_routed, wire_bytes,
)

cdef enum:
    NEW_HEADERS_BYTES = 10      # "NATS/1.0\r\n"
    INFO_LINES_MAX = 1024
    FRAME_BYTES = 512

cdef int64_t TRACES_AWAITED_NS = 10_000_000_000    # traces of other servers, each after the last
cdef bytes INFO_NAME = b"Nats-Request-Info"
cdef const char* STATUS = b"NATS/1.0"
cdef const char* INFO_NAME_LOWER = b"nats-request-info"
cdef Py_ssize_t STATUS_LEN = 8, INFO_NAME_LEN = 17
cdef object LINE_END = re.compile(rb"(\r\n|\r|\n)")
cdef object NOT_IN_NAMES = re.compile(r"[^!-~]+")


cdef class ServiceImportSink(Sink):
    """One service import of an account."""

    def __init__(
        self, AccountEntry importer not None, AccountEntry exporter not None,
        ExportedService export not None, describe, *,
        str subject=None, transform=None, bint is_shared=False,
    ):
        """Requests are delivered on `subject`, or what `transform` (source, destination) makes.

        With neither they keep their subject. `describe(session, account, service, is_shared,
        is_located)` returns the header's JSON.
        """
        self.reactor = importer.reactor
        self.importer = importer
        self.exporter = exporter
        self.export = export
        self.describe = describe
        self.is_shared = is_shared
        self.info_lines = {}
        self.subject = None if subject is None else wire_bytes(subject)
        if transform is not None:
            self.transform = SubjectTransform(*transform)
            self.memo = SubjectMemo()

    def __dealloc__(self):
        free(self.frame)

    cdef int deliver(self, Subscription sub, Message* message) except -1:
        if sub.closed or is_routed(message.origin) or was_here(message.origin.hop, self.export):
            return 0
        sub.delivered += 1
        return self.forward(message, None)

    def deliver_traced(self, Subscription sub not None, TracedMessage traced not None) -> bool:
        """Deliver a traced request, and record that it passes into the exporter's account.

        Unless the export `allows_trace`, what happens behind that is not recorded, and with
        trace-only nothing is delivered.
        """
        if (
            sub.closed or is_routed(traced.message.origin)
            or was_here(traced.message.origin.hop, self.export)
        ):
            return False
        if not traced.trace.is_only:
            sub.delivered += 1
        return self.forward(<Message*> traced.message, traced)

    cdef bint forward(self, Message* message, TracedMessage traced) except -1:
        """Deliver a request in the exporter's account; return whether someone took it."""
        cdef Message request = message[0]
        cdef Origin origin = message.origin[0]
        cdef Hop hop
        cdef PendingReply pending = None
        cdef bytes kept_subject = self.exported_subject(message)
        cdef bytes _owner               # what owns the data of a large request
        cdef object measure = None
        cdef const char* reply = message.reply
        cdef Py_ssize_t reply_len = message.reply_len if reply != NULL else 0
        cdef int64_t delivered
        hop.export = <PyObject*> self.export
        hop.account = <PyObject*> self.importer.account
        hop.is_shared = self.is_shared
        hop.before = message.origin.hop
        origin.account = <PyObject*> self.exporter.account
        origin.hop = &hop
        request.origin = &origin
        if kept_subject is not None:
            request.subject = PyBytes_AS_STRING(kept_subject)
            request.subject_len = PyBytes_GET_SIZE(kept_subject)
        if self.export.latency is not None:
            measure = self.begin_measure(message)
        if reply != NULL and not is_consumer_ack(reply, reply_len):
            pending = self.exporter.expect(
                reply, reply_len, self.export, self.importer, measure
            )
            reply = PyBytes_AS_STRING(pending.subject)
            reply_len = PyBytes_GET_SIZE(pending.subject)
        _owner = self.write(&request, message, reply, reply_len)
        delivered = self.pass_on(
            self.resolve(&request), &request, traced, message.subject[:message.subject_len]
            if traced is not None else None,
        )
        if pending is not None and (
            delivered == 0 or (traced is not None and traced.trace.is_only)
        ):
            self.exporter.forget(pending, 0 if delivered else SERVICE_UNAVAILABLE)
        return delivered > 0

    cdef bytes exported_subject(self, Message* message):
        """Return the subject in the exporter's account; None: that of the message."""
        cdef const char* out = NULL
        cdef Py_ssize_t length = 0
        cdef uint64_t hash
        cdef bytes result = self.subject
        cdef bytes mapped
        if self.transform is not None:
            hash = hash_name(message.subject, message.subject_len)
            result = self.memo.find(message.subject, message.subject_len, hash)
            if result is None:
                if self.transform.apply(message.subject, message.subject_len, &out, &length):
                    result = out[:length]
                else:
                    result = self.transform.map_words(message.subject[:message.subject_len])
                if result is not None:
                    self.memo.keep(message.subject[:message.subject_len], hash, result)
        if self.exporter.mappings is None:
            return result
        if result is None:
            return self.exporter.mapped(message.subject, message.subject_len)
        mapped = self.exporter.mapped(PyBytes_AS_STRING(result), PyBytes_GET_SIZE(result))
        return result if mapped is None else mapped

    cdef object begin_measure(self, const Message* message):
        """Return the LatencyMeasure of a request, if it is one that is measured."""
        return self.export.latency.begin(
            None if message.origin.session == NULL else <object> message.origin.session,
            self.importer.account.name, self.is_shared,
            <bytes> message.data[:message.header_len], message.reply != NULL,
        )

    cdef bytes info_line(self, const Origin* origin):
        """Return the header with which the server tells of the requestor, as its line."""
        cdef ClientSession session
        if origin.hop != NULL or origin.session == NULL or (
            not isinstance(<object> origin.session, ClientSession)
        ):
            return self.new_info_line(origin)
        session = <ClientSession> origin.session
        known = self.info_lines.get(session.cid)
        if known is None or known[0] != session.rtt_ns:
            if len(self.info_lines) >= INFO_LINES_MAX:
                self.info_lines.clear()
            known = (session.rtt_ns, self.new_info_line(origin))
            self.info_lines[session.cid] = known
        return known[1]

    cdef bytes new_info_line(self, const Origin* origin):
        """Return the line of the header for a message of this origin."""
        cdef const Hop* hop = origin.hop
        cdef bint is_shared = self.is_shared
        cdef bint is_located = is_shared or self.exporter.account.is_system
        cdef object account = self.importer.account
        cdef str service = "" if hop == NULL else account.name
        while hop != NULL:
            is_located = is_located or hop.is_shared
            is_shared = hop.is_shared
            account = <object> hop.account
            hop = hop.before
        json = self.describe(
            None if origin.session == NULL else <object> origin.session, account.name, service,
            is_shared, is_located,
        )
        return INFO_NAME + b": " + json + b"\r\n"

    cdef bytes write(
        self, Message* request, const Message* message, const char* reply, Py_ssize_t reply_len
    ):
        """Set line and data of the request; return what owns them, or None: `frame` does."""
        cdef bytes line = self.info_line(message.origin)
        cdef bytes cleaned              # what owns `headers`, if those of the message are not taken
        cdef const char* headers = b"NATS/1.0\r\n\r\n"
        cdef Py_ssize_t headers_len = NEW_HEADERS_BYTES + 2
        cdef Py_ssize_t status_len = NEW_HEADERS_BYTES
        cdef Py_ssize_t header_len, size
        cdef bytes owner = None
        cdef char* data
        cdef char* end
        if message.header_len > NEW_HEADERS_BYTES + 2:
            headers = message.data
            headers_len = message.header_len
            status_len = status_length(headers, headers_len)
            if status_len == 0 or may_imitate(headers + status_len, headers + headers_len):
                cleaned = without_imitations(headers[:headers_len])
                headers = PyBytes_AS_STRING(cleaned)
                headers_len = PyBytes_GET_SIZE(cleaned)
                status_len = status_length(headers, headers_len)
        header_len = headers_len + PyBytes_GET_SIZE(line)
        size = header_len + message.data_len - message.header_len
        if size + 2 > BY_REFERENCE_BYTES:
            owner = PyBytes_FromStringAndSize(NULL, size + 2)
            data = PyBytes_AS_STRING(owner)
            end = self.room(reply_len + LINE_BYTES)
        else:
            end = self.room(reply_len + LINE_BYTES + size + 2)
        request.line = end
        request.reply = NULL
        request.reply_len = reply_len
        if reply != NULL:
            request.reply = end
            memcpy(end, reply, reply_len)
            end[reply_len] = c" "
            end += reply_len + 1
        end = put_decimal(end, header_len)
        end[0] = c" "
        end = put_decimal(end + 1, size)
        memcpy(end, b"\r\n", 2)
        end += 2
        request.line_len = end - request.line
        if owner is None:
            data = end
        memcpy(data, headers, status_len)
        memcpy(data + status_len, PyBytes_AS_STRING(line), PyBytes_GET_SIZE(line))
        memcpy(
            data + status_len + PyBytes_GET_SIZE(line), headers + status_len,
            headers_len - status_len,
        )
        memcpy(
            data + header_len, message.data + message.header_len,
            message.data_len - message.header_len + 2,
        )
        request.data = data
        request.header_len = header_len
        request.data_len = size
        request.owner = <PyObject*> owner if owner is not None else NULL
        return owner

    cdef MatchResult resolve(self, Message* request):
        """Return the recipients in the exporter's account."""
        cdef MatchResult result = self.recipients
        if (
            result is None or not result.live or result.subject_len != request.subject_len
            or memcmp(result.subject, request.subject, request.subject_len) != 0
        ):
            result = self.exporter.sublist.lookup(request.subject, request.subject_len)
            self.recipients = result if result.live else None
        return result

    cdef int64_t pass_on(
        self, MatchResult to, Message* request, TracedMessage traced, bytes published
    ) except -1:
        """Deliver the request, and record that if it is traced."""
        cdef TracedMessage further
        cdef Message changed
        cdef Sink silent = silent_publisher(request.origin)
        if traced is None:
            return distribute(to, request, self.reactor, silent)
        traced.trace.service_entered(
            self.exporter.account.name, published, request.subject[:request.subject_len]
        )
        if self.export.allows_trace:
            further = TracedMessage.__new__(TracedMessage)
            further.message = request
            further.trace = traced.trace
            if to.has_remote:
                kept = self.lead_back(traced, request, &changed)
                further.message = &changed
            return distribute_traced(to, further, self.reactor, silent)
        if traced.trace.is_only:
            return 0
        kept = with_headers(
            request, traced.trace.untraced(request.data[:request.header_len]), &changed
        )
        delivered = distribute(to, &changed, self.reactor, silent)
        del kept
        return delivered

    cdef tuple lead_back(self, TracedMessage traced, Message* request, Message* changed):
        """Set `changed` to the request, with a destination from which traces come back here.

        Other servers publish their traces in the exporter's account. Returns what owns the bytes.
        """
        cdef bytes destination = traced.trace.destination
        cdef ExportedService export = ExportedService(
            self.export.subject, response_type=STREAM, threshold_ns=TRACES_AWAITED_NS,
        )
        cdef PendingReply pending = self.exporter.expect(
            PyBytes_AS_STRING(destination), PyBytes_GET_SIZE(destination), export, self.importer,
        )
        return with_headers(
            request,
            traced.trace.sent_to(request.data[:request.header_len], pending.subject), changed,
        )

    cdef char* room(self, Py_ssize_t need) except NULL:
        """Return the frame buffer, grown to `need` bytes."""
        cdef Py_ssize_t size = FRAME_BYTES
        cdef char* frame
        if need > self.frame_bytes:
            while size < need:
                size *= 2
            frame = <char*> realloc(self.frame, size)
            if frame == NULL:
                raise MemoryError
            self.frame = frame
            self.frame_bytes = size
        return self.frame


cdef Py_ssize_t status_length(const char* block, Py_ssize_t length) noexcept:
    """Return the length of the first line of a header block; 0: the block is not well formed."""
    cdef const char* end
    if memcmp(block, STATUS, STATUS_LEN) != 0 or memcmp(block + length - 4, b"\r\n\r\n", 4) != 0:
        return 0
    if block[STATUS_LEN] != c"\r" and block[STATUS_LEN] != c" ":
        return 0
    end = line_end(block + STATUS_LEN, block + length)
    return end + 2 - block if end[0] == c"\r" and end[1] == c"\n" else 0


cdef bint may_imitate(const char* line, const char* end) noexcept:
    """Return whether lines may hold an INFO_NAME in some spelling, or continue a line before."""
    if line[0] == c" " or line[0] == c"\t":
        return True
    while line < end:
        if begins_like_info(line, end):
            return True
        line = line_end(line, end) + 1
    return False


cdef const char* line_end(const char* at, const char* end) noexcept:
    while at < end and at[0] != c"\r" and at[0] != c"\n":
        at += 1
    return at


cdef bint begins_like_info(const char* at, const char* end) noexcept:
    """Return whether a line's name is INFO_NAME, apart from case, blanks and bytes beyond ASCII."""
    cdef Py_ssize_t found = 0
    cdef unsigned char byte
    while at < end and at[0] != c"\r" and at[0] != c"\n":
        byte = at[0]
        if byte > 0x7E:
            return True
        if byte > 0x20:
            if found == INFO_NAME_LEN:
                return byte == c":"
            if (byte | 0x20 if c"A" <= byte <= c"Z" else byte) != INFO_NAME_LOWER[found]:
                return False
            found += 1
        at += 1
    return False


def without_imitations(bytes block not None) -> bytes:
    """Return a well-formed header block that holds no INFO_NAME in any spelling.

    Receivers differ in what ends a line, in whether names have a case, in what they strip from
    names, and in whether a line that begins with a blank continues the one before. A block whose
    first line is neither NATS/1.0 nor that, a blank and more, is taken for an empty one.
    """
    parts = LINE_END.split(block)           # line, end, line, end, …, line
    kept = [parts[0]]
    if not (kept[0] + b" ").startswith(STATUS + b" "):
        return b"NATS/1.0\r\n\r\n"
    cdef bint is_left_out = True            # a line that continues the one of the server
    for end, line in zip(parts[1::2], parts[2::2]):
        if not line.startswith((b" ", b"\t")):
            is_left_out = False
        is_left_out = is_left_out or is_imitation(line)
        if not is_left_out:
            kept += [b"\r\n" if len(kept) == 1 else end, line]
    return b"".join(kept).rstrip(b"\r\n") + b"\r\n\r\n"


cdef bint is_imitation(bytes line):
    name, colon, _ = line.partition(b":")
    shown = NOT_IN_NAMES.sub("", name.decode(errors="replace").upper())
    return bool(colon) and shown == "NATS-REQUEST-INFO"
