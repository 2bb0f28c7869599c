"""The clients' side of the JetStream rows, compiled so that it uses little CPU beside the server.

Promise
- Every received frame is parsed. An error in place of an acknowledgement, an unexpected status, a
  gap or a duplicate in a consumer's sequence ends the run: nothing wrong is counted.
- No Python object is made per message.
- Each reader has its own frame parser, that of the Spark client; frames point into its buffer and
  are valid until the next `read`.

The received frames:

    MSG <subject> <sid> [reply] <bytes>\\r\\n<data>\\r\\n
    HMSG <subject> <sid> [reply] <header bytes> <total bytes>\\r\\n<headers><data>\\r\\n

    PubAck data      {"stream":"S","seq":17}                            (spaces differ)
    reply to ack     $JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.<consumer's sequence>.
                         <time>.<pending>

Sources: nats-server's `JSPubAckResponse`, `consumer.ackReply` (ack subjects),
`consumer.sendFlowControl` and `Server.streamSnapshot`; ADR-31 (direct get).
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, strlen

from natsd.spark.wire.frames cimport MESSAGE, NOTHING, RECEIVE_BYTES_MIN, FrameParser, MessageFrame

from array import array

from natsd.bench.wire import LoadError
from natsd.spark.errors import ProtocolViolation

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int descriptor, void* buffer, size_t size, int flags)
    ssize_t send(int descriptor, const void* buffer, size_t size, int flags)

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int POLLIN
    int poll(pollfd* descriptors, unsigned long count, int timeout_ms)

cdef extern from "<string.h>" nogil:
    void* memmem(const void* haystack, size_t haystack_bytes, const void* needle, size_t bytes)

cdef extern from "<time.h>" nogil:
    struct timespec:
        int64_t tv_sec
        int64_t tv_nsec
    int CLOCK_MONOTONIC
    int clock_gettime(int clock, timespec* now)

cdef enum:
    STALL_MS = 10_000
    SHOWN_BYTES = 120
    ACK_TOKENS = 9


cdef Word word(const char* text) noexcept nogil:
    return Word(text, strlen(text))


cdef Word SEQ = word(b'"seq":')
cdef Word ERROR = word(b'"error"')
cdef Word DUPLICATE = word(b'"duplicate"')
cdef Word STALLED = word(b"Nats-Consumer-Stalled: ")
cdef Word SEQUENCE = word(b"Nats-Sequence: ")
cdef Word STATUS = word(b"NATS/1.0 ")
cdef Word CONTROL = word(b"NATS/1.0 100")
cdef Word END = word(b"NATS/1.0 204")
cdef Word ACK_SUBJECT = word(b"$JS.ACK.")
cdef Word ACK = word(b" 4\r\n+ACK\r\n")
cdef Word EMPTY = word(b" 0\r\n\r\n")
cdef Word PUBLISH = word(b"PUB ")


cdef bint begins(const char* data, Py_ssize_t size, Word word) noexcept nogil:
    return size >= word.size and memcmp(data, word.text, word.size) == 0


cdef const char* find(const char* data, Py_ssize_t size, Word word) noexcept nogil:
    return <const char*> memmem(data, size, word.text, word.size)


cdef int64_t number_at(const char* digits, const char* end) noexcept nogil:
    """Return the decimal number that begins at `digits`; -1: there is no digit."""
    cdef int64_t number = 0
    cdef const char* at = digits
    while at < end and c'0' <= at[0] <= c'9':
        number = number * 10 + (at[0] - c'0')
        at += 1
    return number if at > digits else -1


cdef int64_t now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec * 1_000_000_000 + now.tv_nsec


cdef str shown(const char* data, Py_ssize_t size):
    """Return the first SHOWN_BYTES bytes as an error message quotes them."""
    return repr(data[:min(size, SHOWN_BYTES)])


cdef const char* after_blanks(const char* at, const char* end) noexcept nogil:
    while at < end and at[0] == c' ':
        at += 1
    return at


cdef str content(Frame* frame):
    """Return the frame's headers and data as an error message quotes them."""
    return shown(frame.headers, frame.headers_bytes + frame.data_bytes)


cdef int check_ack(Frame* frame) except -1:
    """Raise LoadError unless the frame acknowledges a publish that is no duplicate."""
    if find(frame.data, frame.data_bytes, SEQ) == NULL:
        raise LoadError(f"no acknowledgement: {content(frame)}")
    if find(frame.data, frame.data_bytes, ERROR) != NULL:
        raise LoadError(f"no acknowledgement: {content(frame)}")
    if find(frame.data, frame.data_bytes, DUPLICATE) != NULL:
        raise LoadError(f"a duplicate: {content(frame)}")
    return 0


cdef class FrameReader:

    def __cinit__(self, int descriptor, *_, **__):
        self._descriptor = descriptor
        self._parser = FrameParser()

    def fill(self):
        return max(0, self.read())

    cdef Py_ssize_t read(self) except -2:
        """Receive once, behind the bytes that the buffer holds; bytes, or -1 if nothing came."""
        cdef FrameParser parser = self._parser
        cdef Py_ssize_t size
        if parser.head == parser.tail:
            parser.head = parser.tail = 0
        parser.make_room(RECEIVE_BYTES_MIN)
        with nogil:
            size = recv(
                self._descriptor, parser.at + parser.tail, parser.room_bytes - parser.tail, 0
            )
        if size > 0:
            parser.tail += size
            self.received_bytes = self.received_bytes + size
            return size
        if size < 0 and errno in (EAGAIN, EINTR):
            return -1
        raise LoadError("the server closed the connection")

    cdef bint next(self, Frame* frame) except -1:
        """Take the next whole frame; False: there is none. It is valid until the next `read`."""
        cdef MessageFrame* message = &self._parser.frame
        cdef int found
        try:
            found = self._parser.scan()
        except ProtocolViolation as error:
            raise LoadError(str(error)) from None
        if found == NOTHING:
            return False
        if found != MESSAGE:
            self._control(frame)
            return True
        frame.kind = MSG
        frame.subject, frame.subject_bytes = message.subject, message.subject_len
        frame.reply = message.reply if message.reply_len else NULL
        frame.reply_bytes = message.reply_len
        frame.headers, frame.headers_bytes = message.headers, message.headers_len
        frame.data, frame.data_bytes = message.data, message.data_len
        return True

    cdef int _control(self, Frame* frame) noexcept:
        """Describe the control line that was just read."""
        cdef const char* line = self._parser.at + self._parser.head - self._parser.line_len
        cdef Py_ssize_t size = self._parser.line_len - 1
        frame.subject = frame.reply = frame.headers = NULL
        frame.subject_bytes = frame.reply_bytes = frame.headers_bytes = 0
        frame.data, frame.data_bytes = line, size
        if begins(line, size, word(b"PING")):
            frame.kind = PING
        elif begins(line, size, word(b"PONG")):
            frame.kind = PONG
        elif begins(line, size, word(b"INFO")):
            frame.kind = INFO
        elif begins(line, size, word(b"+OK")):
            frame.kind = OK
        else:
            frame.kind = ERR
        return 0

    cdef int _skip_other(self, Frame* frame) except -1:
        """Skip a frame that is no message; raise LoadError if it is -ERR."""
        if frame.kind == ERR:
            raise LoadError(f"the server says {shown(frame.data, frame.data_bytes)}")
        return 0


cdef class PubAcks(FrameReader):

    def __init__(self, int descriptor, uint32_t tokens):
        self._taken = array("I", bytes(4 * tokens))

    def take(self):
        cdef Frame frame
        cdef Py_ssize_t count = 0
        while self.next(&frame):
            if frame.kind == MSG:
                self._take(&frame)
                count += 1
            else:
                self._skip_other(&frame)
        return count

    def counts(self):
        return list(self._taken)

    cdef int _take(self, Frame* frame) except -1:
        cdef const char* end = frame.data + frame.data_bytes
        cdef const char* token = frame.subject + frame.subject_bytes
        cdef const char* found = find(frame.data, frame.data_bytes, SEQ)
        cdef int64_t sequence
        cdef int64_t number
        check_ack(frame)
        sequence = number_at(after_blanks(found + SEQ.size, end), end)
        while token > frame.subject and token[-1] != c'.':
            token -= 1
        number = number_at(token, frame.subject + frame.subject_bytes)
        if not 0 <= number < self._taken.shape[0] or sequence <= 0:
            raise LoadError(f"unexpected acknowledgement {shown(frame.data, frame.data_bytes)}")
        self._taken[number] += 1
        self.last_sequence = sequence
        return 0


cdef class AnsweringReader(FrameReader):

    def __cinit__(self):
        self._answers = bytearray()

    def answers(self):
        cdef bytes answers = bytes(self._answers)
        self._answers.clear()
        return answers

    cdef int _answer(self, const char* subject, Py_ssize_t subject_bytes, Word ending) except -1:
        cdef Py_ssize_t before = len(self._answers)
        cdef char* at
        PyByteArray_Resize(self._answers, before + PUBLISH.size + subject_bytes + ending.size)
        at = PyByteArray_AS_STRING(self._answers) + before
        memcpy(at, PUBLISH.text, PUBLISH.size)
        memcpy(at + PUBLISH.size, subject, subject_bytes)
        memcpy(at + PUBLISH.size + subject_bytes, ending.text, ending.size)
        return 0


cdef class Deliveries(AnsweringReader):

    def __init__(self, int descriptor, *, bint acknowledges):
        self._acknowledges = acknowledges
        self.status = b""

    def take(self):
        cdef Frame frame
        cdef uint64_t before = self.received
        while self.next(&frame):
            if frame.kind != MSG:
                self._skip_other(&frame)
            elif begins(frame.headers, frame.headers_bytes, STATUS):
                self._status_taken(&frame)
            else:
                self._message_taken(&frame)
        return self.received - before

    cdef int _message_taken(self, Frame* frame) except -1:
        cdef const char* end = frame.reply + frame.reply_bytes
        cdef const char* at = frame.reply
        cdef const char* starts[ACK_TOKENS]
        cdef int count = 0
        cdef int64_t consumer_sequence
        if not begins(frame.reply, frame.reply_bytes, ACK_SUBJECT):
            raise LoadError(f"no delivery: {shown(frame.subject, frame.subject_bytes)}")
        while at != NULL and count < ACK_TOKENS:
            starts[count] = at
            count += 1
            at = <const char*> memchr(at, c'.', end - at)
            if at != NULL:
                at += 1
        if count < ACK_TOKENS or at != NULL:
            raise LoadError(f"unexpected ack subject {shown(frame.reply, frame.reply_bytes)}")
        consumer_sequence = number_at(starts[6], end)
        if consumer_sequence != <int64_t> self.last_consumer_sequence + 1:
            raise LoadError(f"delivery {consumer_sequence} after {self.last_consumer_sequence}")
        if number_at(starts[4], end) != 1:
            raise LoadError(f"delivered again: {shown(frame.reply, frame.reply_bytes)}")
        self.last_consumer_sequence = consumer_sequence
        self.last_sequence = number_at(starts[5], end)
        self.pending = number_at(starts[8], end)
        self.received = self.received + 1
        if self._acknowledges:
            self._answer(frame.reply, frame.reply_bytes, ACK)
        return 0

    cdef int _status_taken(self, Frame* frame) except -1:
        """Answer flow control; keep any other status in `status`."""
        cdef const char* end = frame.headers + frame.headers_bytes
        cdef const char* stalled
        cdef const char* stop
        if begins(frame.headers, frame.headers_bytes, CONTROL):
            if frame.reply != NULL:
                return self._answer(frame.reply, frame.reply_bytes, EMPTY)
            stalled = find(frame.headers, frame.headers_bytes, STALLED)
            if stalled != NULL:
                stop = <const char*> memchr(stalled, c'\r', end - stalled)
                stalled += STALLED.size
                return self._answer(stalled, stop - stalled, EMPTY)
            return 0
        self.status = frame.headers[STATUS.size:frame.headers_bytes].split(b"\r")[0]
        return 0


cdef class StoredMessages(FrameReader):

    def take(self):
        """Process the received frames; one that is neither a message nor the end is an error."""
        cdef Frame frame
        cdef const char* found
        cdef const char* end
        cdef uint64_t before = self.received
        while self.next(&frame):
            if frame.kind != MSG:
                self._skip_other(&frame)
                continue
            end = frame.headers + frame.headers_bytes
            found = find(frame.headers, frame.headers_bytes, SEQUENCE)
            if begins(frame.headers, frame.headers_bytes, END):
                self.ended = True
            elif found == NULL:
                raise LoadError(f"no stored message: {content(&frame)}")
            else:
                self._message_taken(number_at(found + SEQUENCE.size, end))
        return self.received - before

    def next_batch(self):
        self.ended = False

    cdef int _message_taken(self, int64_t sequence) except -1:
        if sequence != <int64_t> self.last_sequence + 1:
            raise LoadError(f"message {sequence} after {self.last_sequence}")
        self.last_sequence = sequence
        self.received = self.received + 1
        return 0


cdef class Chunks(AnsweringReader):

    def take(self):
        cdef Frame frame
        cdef uint64_t before = self.data_bytes
        while self.next(&frame):
            if frame.kind != MSG:
                self._skip_other(&frame)
            elif frame.data_bytes:
                self.data_bytes = self.data_bytes + frame.data_bytes
                if frame.reply != NULL:
                    self._answer(frame.reply, frame.reply_bytes, EMPTY)
            elif frame.headers == NULL or begins(frame.headers, frame.headers_bytes, END):
                self.ended = True
            else:
                raise LoadError(f"the snapshot ended with {content(&frame)}")
        return self.data_bytes - before


cdef class Callers:

    def __init__(
        self,
        list descriptors,
        list requests,
        Py_ssize_t request_bytes,
        Py_ssize_t data_bytes,
    ):
        self._readers = [FrameReader(descriptor) for descriptor in descriptors]
        self._requests = requests
        self._request_bytes = request_bytes
        self._data_bytes = data_bytes

    def run(self, Py_ssize_t calls, latencies_ns=None):
        cdef Py_ssize_t clients = len(self._readers)
        cdef Py_ssize_t sent = 0
        cdef Py_ssize_t answered = 0
        cdef Py_ssize_t index
        cdef int64_t began = 0
        cdef int ready
        cdef FrameReader reader
        cdef pollfd* waiting = <pollfd*> PyMem_Malloc(clients * sizeof(pollfd))
        if waiting == NULL:
            raise MemoryError
        try:
            for index in range(clients):
                reader = self._readers[index]
                waiting[index].fd = reader._descriptor
                waiting[index].events = POLLIN
            began = now_ns()
            for index in range(min(clients, calls)):
                self._send(waiting[index].fd, self._requests[index], sent)
                sent += 1
            while answered < calls:
                with nogil:
                    ready = poll(waiting, clients, STALL_MS)
                if ready <= 0:
                    raise LoadError("the server does not answer")
                for index in range(clients):
                    if not waiting[index].revents:
                        continue
                    reader = self._readers[index]
                    if reader.read() < 0 or not self._answered(reader):
                        continue
                    answered += 1
                    if latencies_ns is not None:
                        latencies_ns.append(now_ns() - began)
                        began = now_ns()
                    if sent < calls:
                        self._send(waiting[index].fd, self._requests[index], sent)
                        sent += 1
        finally:
            PyMem_Free(waiting)
        return answered

    cdef int _send(self, int descriptor, bytes requests, Py_ssize_t number) except -1:
        cdef const char* block = requests
        cdef Py_ssize_t size = self._request_bytes
        cdef Py_ssize_t offset = number % (len(requests) // size) * size
        if send(descriptor, block + offset, size, 0) != size:
            raise LoadError("a request could not be sent")
        return 0

    cdef bint _answered(self, FrameReader reader) except -1:
        """Return whether the answer has arrived; raise LoadError if it is wrong."""
        cdef Frame frame
        while reader.next(&frame):
            if frame.kind != MSG:
                reader._skip_other(&frame)
                continue
            if self._data_bytes < 0:
                check_ack(&frame)
            elif frame.data_bytes != self._data_bytes:
                raise LoadError(f"unexpected answer {content(&frame)}")
            return True
        return False
