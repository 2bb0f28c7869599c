"""The engine of one consumer: it reads the stream, sends, and takes acknowledgements and requests.

    stream shows, client asks or acknowledges, deadline is over
                              │ submits
                              ▼
    run, a slice ── what the inbox kept, what the stream may remove, confirmations
                 ── what is due: redeliveries, requests that expire, heartbeats
                 ── deliveries: the redelivery's queue first, then the cursor
                 ── the earliest of all deadlines goes to the scheduler

    its parts        PendingCursor  the messages to read, and their number    pending_cursor.pyx
                     Redelivery     the messages to deliver again, and when   redelivery.pyx
                     PullRequests   the waiting pull requests                 pull.pyx
                     PushSubject    or the deliver subject                    push.pyx
                     Acks           the effects of acknowledgements           acks.pyx
                     Outgoing       the messages as they are sent             outgoing.pyx
                     Replay         the pace                                  replay.pyx
                     Inbox          the sinks of what comes in                sinks.pyx

Promise
- Only visible messages are sent. New messages are sent in stream order, each once; a message is
  sent again only if it is not acknowledged in time.
- State comes before anything else: a delivery is in the tracker when `run` returns, an
  acknowledgement when `deliver` returns. A message without a recipient counts as not delivered.
- Nothing is sent from inside of a `deliver`, and nothing is taken inside of `run`.
- Memory: requests up to `max_waiting`, pending messages up to `max_ack_pending` (without a limit:
  all of them), and a start list. A recipient that falls behind is sent nothing for a while.
- The state on disk lags by 100 ms at most, and not at all where an answer waits for it
  (confirmations.pyx).
- The scheduler's clock is the only one: wall clock, nanoseconds.

Source: nats-server's `consumer`, especially `loopAndGatherMsgs`, for the order of events.
"""

import asyncio

from libc.stdint cimport int64_t, uint64_t

from natsd.core.routing cimport MatchResult
from natsd.jetstream.consumer.requests cimport (
    Confirmations, Outgoing, PINNED_CLIENT, PriorityGroups, PullRequests, PushSubject, Replay,
    Request,
)
from natsd.jetstream.stream.state cimport INTEREST, ReaderFilters, StreamReaders
from natsd.store.block.blocks cimport MsgBlock
from natsd.store.codec.records cimport RecordView
from natsd.store.log.message_log cimport DONE, GONE, NEEDS_BLOCK, Outcome

from natsd.core.steps import at_once
from natsd.store.consumer.consumer_state import AckPolicyCode, SequencePair
from natsd.store.block.cold_block import ColdBlock
from natsd.store.errors import StoreError

cdef enum:
    POLICY_NONE = 0
    POLICY_EXPLICIT = 2
    POLICY_FLOW_CONTROL = 3
    MESSAGES_PER_SLICE = 256
    BYTES_PER_SLICE = 512 * 1024
    COUNT_BUDGET = 100_000      # units of an operation on the log: about 200 us
    EXPIRED_PER_SLICE = 1000
    TOLD_PER_SLICE = 1000       # messages that the stream may remove
    CONFIRMED_PER_SLICE = 500
    CONFIRMED_AT_ONCE = 1 << 30
    LOST_PER_SLICE = 5000
    CONGESTED_NS = 2_000_000
    UNHEARD_NS = 250_000_000    # until a push subject without a recipient is tried again
    FETCH_AGAIN_NS = 1_000_000_000
    LOST_CHECK_NS = 10_000_000

cdef int64_t NOT_DUE = 4_000_000_000_000_000_000      # as a time, the year 2096

CONSUMER_DELETED = "Consumer Deleted"
SERVER_SHUTDOWN = "Server Shutdown"


cdef class ConsumerEngine(Reader):
    def __init__(
        self, StreamReaders readers not None, str name not None, settings, store, events,
        ReaderFilters wanted=None,
    ):
        self.readers = readers
        self.name = name
        self.events = events
        self.tracker = store.tracker
        self.log = readers.log
        self.publisher = readers.publisher
        self.inbox = Inbox(self, settings.stream, name)
        self.is_push = settings.deliver_subject is not None
        self.is_stopped = True
        self.redelivery = Redelivery(self.tracker, self._exceeded)
        self.confirmations = Confirmations(store, readers.publisher, self._settled)
        self.acks = Acks(
            readers, self.tracker, self.redelivery, self.confirmations, events
        )
        self.cursor = self.keyed = self._keyed_cursor(settings)
        if self.keyed is None:
            self.cursor = PendingCursor(self.log)
        self.redelivery.follow(self.keyed, None)
        self.outgoing = Outgoing()
        self.requests = PullRequests(readers.publisher)
        self.push = PushSubject(readers.publisher)
        self.replay = Replay()
        self._take(settings)
        if wanted is not None:
            self.take_filters(wanted)

    # Creation and end

    def configure(self, settings, ReaderFilters wanted=None) -> None:
        """Apply new settings; `wanted` are their filters, if they are new, listed already."""
        cdef object before = self.settings
        if (
            settings.stream != before.stream or settings.ack_policy != before.ack_policy
            or settings.key_token != before.key_token
            or (settings.deliver_subject is None) is self.is_push
        ):
            raise ValueError("a consumer's stream, ack policy, key and kind never change")
        self._take(settings)
        if settings.filters != before.filters:
            if self.is_stopped:
                self.let_go_of_filters()
            if wanted is None:
                wanted = at_once(self.readers.list_filters(settings.filters))
            self.take_filters(wanted)
            if not self.is_stopped:
                self.readers.change_filters(self, self.heard())
                self._count_first()
        if settings.deliver_subject != before.deliver_subject:
            self.redelivery.enqueue_all()
        self.wake()

    def _take(self, settings) -> None:
        assert <int> settings.ack_policy == self.tracker.ack_policy
        self.settings = settings
        self.max_ack_pending = max(settings.max_ack_pending, 0)
        if settings.ack_policy is AckPolicyCode.NONE:
            self.max_ack_pending = 0
        self.tracker.max_deliver = max(settings.max_deliver, 0)
        self.acks.sample_percent = settings.sample_percent
        self.outgoing.configure(settings.stream, self.name, settings.headers_only)
        self.requests.configure(settings, self.events)
        self.push.configure(settings.stream, self.name, settings, self.readers.scheduler.now())
        self.redelivery.configure(
            # the answer to flow control may come at any time
            NOT_DUE if settings.ack_policy is AckPolicyCode.FLOW_CONTROL else settings.ack_wait_ns,
            tuple(settings.backoff_ns),
        )

    cdef int take_filters(self, ReaderFilters wanted) except -1:
        self.wanted = wanted
        return self.cursor.set_filter(wanted.filter)

    cdef int let_go_of_filters(self) except -1:
        """Take filters that are listed, but not in force, out of the readers."""
        if self.wanted is not None:
            self.readers.unlist(self.wanted)
            self.forget_filters()
        return 0

    cdef int forget_filters(self) except -1:
        """Forget the filters: the stream takes them out, so they may not be used here any more."""
        self.wanted = None
        self.cursor.filter = None
        self.cursor.counting = None
        return 0

    def _keyed_cursor(self, settings) -> KeyedPendingCursor | None:
        cdef KeyedPendingCursor keyed
        if not settings.key_token:
            return None
        keyed = KeyedPendingCursor(self.log)
        keyed.set_key(self.tracker, settings.key_token, settings.key_look_ahead)
        return keyed

    def copy_dead_letters(self, letters) -> None:
        """Have `letters` copy dead letters from now on; None: nothing copies them."""
        if letters is None:
            self.acks.give_up_letters()
        else:
            self.redelivery.follow(self.keyed, letters)
        self.wake()

    cdef ReaderFilters heard(self):
        """Return the filters to register with the readers. With a start list or a key and no
        filter, they match everything: a reader without filters is not told of removals."""
        if self.settings.filters or not (self.cursor.start_count or self.keyed is not None):
            return self.wanted
        return at_once(self.readers.list_filters(("*", "*.>")))

    def start(self, uint64_t next_sequence, last_per_subject=None, uint64_t resume=0) -> None:
        """Deliver from `next_sequence` on."""
        if self.wanted is None:
            self.take_filters(at_once(self.readers.list_filters(self.settings.filters)))
        self.cursor.begin(next_sequence, resume, last_per_subject)
        self.redelivery.restore()
        if self.tracker.terminated and self.redelivery.letters is None:
            self.acks.give_up_letters()
        self.is_stopped = False
        self.replay.begin(self.settings.replay_original, self.readers.visible)
        self.acks.lost_from = self.acks.seen_gone = 0
        self.readers.put_reader(self, self.heard())
        self._count_first()
        self.wake()

    def begin_anew(
        self, uint64_t next_sequence, last_per_subject=None, uint64_t resume=0
    ) -> None:
        """Begin as with `start`, after a reset of the store.

        Until `go_on`, nothing is delivered and no message of an interest stream is released.
        """
        self.start(next_sequence, last_per_subject, resume)
        self.last_delivered_ns = self.last_ack_ns = 0
        self.hold_until_ns = NOT_DUE
        self.needs_all = self.readers.retention == INTEREST

    def go_on(self, bint is_durable) -> None:
        """Go on: the reset is on disk, or cannot be written."""
        self.hold_until_ns = 0
        if self.needs_all and is_durable:
            self.needs_all = False
            self.readers.recheck_soon()
        self.wake()

    def _count_first(self) -> None:
        """Count for a slice, so that most consumers know at once how many messages are pending."""
        if self.cursor.is_counting and not self.is_running:
            self.count_some()

    def stop(self, status=None) -> None:
        """Deliver and take nothing more."""
        if self.is_stopped:
            self.let_go_of_filters()
            return
        self.is_stopped = True
        if self.fetching is not None:
            self.fetching.cancel()
        self.requests.flush(len(self.requests.answers))
        self.requests.close(status)
        self.readers.scheduler.set_deadline(self, 0)
        if status == CONSUMER_DELETED:
            self.confirmations.drop()
        # After a shutdown it still needs the messages that are not acknowledged.
        self.readers.remove_reader(self, is_gone=status == CONSUMER_DELETED)
        self.forget_filters()

    def pause(self, int64_t until_ns) -> None:
        """Deliver nothing before `until_ns`."""
        self.paused_until_ns = until_ns
        self.wake()

    def resume(self) -> None:
        """End the pause."""
        self.paused_until_ns = 0
        self.wake()

    def unpin(self, str group) -> None:
        """Unpin the pinned client; the advisory gives "admin" as the reason."""
        if self.requests.groups is not None:
            self.requests.groups.unpin(group, "admin")
            self.wake()

    def mark_with(self, age) -> None:
        """Have messages, heartbeats and statuses of requests carry the line that `age` returns."""
        self.requests.age = self.push.age = age
        self.outgoing.mark_with(age)

    def set_push_interest(self, bint is_interested) -> None:
        """Note whether the deliver subject has a subscriber."""
        self.push.is_active = is_interested
        self.push.to = None
        self.hold_until_ns = 0
        if self.push.heartbeat_ns:
            self.push.heartbeat_due_ns = self.readers.scheduler.now() + self.push.heartbeat_ns
        self.wake()

    # Input

    cdef int wake(self) except -1:
        if not self.is_stopped and not self.is_queued:
            self.readers.scheduler.submit(self)
        return 0

    cdef int expired(self, int64_t now_ns) except -1:
        return self.wake()

    cdef int appeared(self, uint64_t sequence) except -1:
        return self.cursor.appeared(sequence)

    cdef int vanished(self, uint64_t sequence) except -1:
        self.cursor.vanished(sequence)
        self.acks.lose(sequence)
        return self.wake()

    cdef int recount(self) except -1:
        """Search again behind the last delivery: removals may have been rolled back."""
        self.cursor.look_again(max(self.cursor.first, self.tracker.delivered_stream + 1))
        return self.wake()

    cdef bint needs(self, uint64_t sequence) except -1:
        if self.needs_all:
            return True
        if sequence > self.tracker.floor_stream:
            if self.tracker.ack_policy != POLICY_EXPLICIT:
                return True
            if self.cursor.is_unread(sequence) or self.tracker.find(sequence) >= 0:
                return True
        return len(self.tracker.redelivered) > 0 and sequence in self.tracker.redelivered

    cdef int ask(
        self, const char* reply, Py_ssize_t reply_len, const char* body, Py_ssize_t body_len
    ) except -1:
        cdef int64_t now_ns, pending
        if self.is_push:
            return self.requests.answer(reply, reply_len, "409 Consumer is push based")
        now_ns = self.readers.scheduler.now()
        if not self.requests.take(reply, reply_len, body, body_len, now_ns, -1):
            pending = self.cursor.size(self.readers.visible)
            pending += len(self.redelivery.queued)
            self.requests.take(reply, reply_len, body, body_len, now_ns, pending)
        return 0

    def _exceeded(self, uint64_t sequence, uint64_t deliveries) -> None:
        try:
            self.events.max_deliveries(sequence, deliveries)
        except Exception:
            self.acks.failed()

    # One slice of work

    cdef bint run(self, int64_t now_ns) except? -1:
        if self.inbox.kept:
            self.inbox.deliver_kept()
        self.is_running = True
        try:
            return self.work(now_ns)
        finally:
            self.is_running = False

    cdef bint work(self, int64_t now_ns) except? -1:
        cdef bint more
        if self.is_stopped:
            return False
        self.note_acked(now_ns)
        self.slice += 1
        self.requests.slice = self.slice
        more = self.tell_stream()
        more = self.answer() or more
        more = self.redelivery.collect(now_ns, EXPIRED_PER_SLICE) or more
        more = self.acks.lose_front(self.log, LOST_PER_SLICE) or more
        self.serve_deadlines(now_ns)
        if self.redelivery.is_followed:
            self.follow_up()
        more = self.deliver_some(now_ns) or more
        if self.redelivery.is_followed:
            more = self.await_durable() or more
        more = more or self.acks.released_head < self.acks.released_tail
        self.keep_time(now_ns)
        return more or len(self.inbox.kept) > 0

    cdef int follow_up(self) except -1:
        """Do what waited for durable changes: free keys, hand over dead letters."""
        cdef uint64_t durable = self.confirmations.durable_changes()
        if self.keyed is not None:
            self.keyed.free_keys(durable)
        if self.redelivery.letters is not None:
            self.redelivery.hand_over_dead_letters(durable)
        return 0

    cdef bint await_durable(self) except? -1:
        """Commit the changes that keys or dead letters wait for. True: they are durable already."""
        cdef uint64_t awaited = 0
        if self.keyed is not None:
            awaited = self.keyed.awaited
        if self.redelivery.letters is not None:
            awaited = max(awaited, self.redelivery.dead_letters_since())
        return awaited > 0 and self.confirmations.want(awaited)

    cdef bint tell_stream(self) except? -1:
        """Tell the stream which messages it may remove. True: there are more."""
        cdef Acks acks = self.acks
        cdef int told = 0
        while acks.released_head < acks.released_tail and told < TOLD_PER_SLICE:
            acks.released_head += 1
            told += 1
            self.readers.acked(self, acks.released[acks.released_head - 1])
        if acks.released_head == acks.released_tail:
            acks.released_head = acks.released_tail = 0
        return acks.released_tail > 0

    def _settled(self) -> None:
        """Send answers, or wake: something that was waited for is on disk."""
        if self.is_stopped:
            self.confirmations.serve(CONFIRMED_AT_ONCE)
        else:
            self.wake()

    cdef bint answer(self) except? -1:
        """Answer refused requests and durable acknowledgements. True: there are more."""
        self.requests.flush(CONFIRMED_PER_SLICE)
        return self.confirmations.serve(CONFIRMED_PER_SLICE) or len(self.requests.answers) > 0

    cdef uint64_t last_read(self) noexcept:
        if self.cursor.start_count or self.keyed is not None:
            return self.tracker.delivered_stream
        return self.cursor.next - 1

    cdef int serve_deadlines(self, int64_t now_ns) except -1:
        if self.requests.due_ns and now_ns >= self.requests.due_ns:
            # A no-wait request that got some messages does not wait until others are acknowledged.
            self.sweep_requests(now_ns, 0 < self.max_ack_pending <= self.tracker.pending_count)
        if self.push.heartbeat_ns and self.push.is_active and now_ns >= self.push.heartbeat_due_ns:
            self.push.heartbeat_due_ns = now_ns + self.push.heartbeat_ns
            self.push.send_heartbeat(self.tracker.delivered_consumer, self.last_read())
            if (
                self.tracker.ack_policy == POLICY_FLOW_CONTROL and self.tracker.pending_count
                and self.push.control is None
            ):
                self.push.ask_control()
        return 0

    cdef int sweep_requests(self, int64_t now_ns, bint at_end) except -1:
        self.requests.sweep(
            now_ns, at_end, self.tracker.delivered_consumer, self.last_read()
        )
        return 0

    cdef int keep_time(self, int64_t now_ns) except -1:
        """Ask to be woken at the earliest deadline, or before that."""
        cdef int64_t[6] due
        cdef int64_t earliest = 0
        cdef int at
        self.confirmations.keep(now_ns)
        due[0] = self.redelivery.next_due_ns()
        due[1] = self.requests.due_ns
        due[2] = self.push.heartbeat_due_ns if self.push.is_active else 0
        # these may be over while a block is fetched, whose arrival wakes the engine too
        due[3] = self.resume_ns if self.resume_ns > now_ns else 0
        due[4] = max(self.paused_until_ns, self.hold_until_ns)
        if due[4] <= now_ns:
            due[4] = 0
        due[5] = self.confirmations.due_ns
        for at in range(6):
            if due[at] and (earliest == 0 or due[at] < earliest):
                earliest = due[at]
        if earliest and (self.due_ns == 0 or earliest < self.due_ns):
            self.readers.scheduler.set_deadline(self, earliest)
        return 0

    # Delivering

    cdef bint deliver_some(self, int64_t now_ns) except? -1:
        cdef int left = MESSAGES_PER_SLICE
        cdef int64_t bytes_before = self.publisher.counters.out_bytes
        cdef Step step = SENT
        if self.paused_until_ns:
            if now_ns < self.paused_until_ns:
                return self.ended(READ_ALL, now_ns) and False
            self.paused_until_ns = 0
        if self.fetching is not None or now_ns < self.hold_until_ns:
            return False
        self.hold_until_ns = self.resume_ns = 0
        self.outgoing.begin_slice()
        if self.cursor.is_counting and not self.count_some():
            return self.fetching is None and self.hold_until_ns == 0
        self.pending = self.cursor.size(self.readers.visible)
        while left > 0:
            step = self.step(now_ns)
            if step != SENT:
                return self.ended(step, now_ns)
            left -= 1
            if self.requests.groups is not None:
                left -= self.requests.groups.looks()
            if self.publisher.counters.out_bytes - bytes_before > BYTES_PER_SLICE:
                break
        return True

    cdef Step step(self, int64_t now_ns) except *:
        cdef uint64_t sequence
        cdef Outcome outcome
        if self.is_push:
            if (
                not self.push.is_active or self.push.is_stalled()
                or self.push.listeners(self.slice) is None
            ):
                return NOBODY
        elif self.requests.head == NULL:
            return NOBODY
        sequence = self.redelivery.next_queued()
        if sequence:
            return self.redeliver(sequence, now_ns)
        if 0 < self.max_ack_pending <= self.tracker.pending_count:
            return ACKS_AWAITED
        outcome = self.cursor.find(self.readers.visible, &sequence)
        if outcome == DONE:
            return self.deliver_new(sequence, now_ns)
        if outcome == NEEDS_BLOCK:
            self.fetch(self.log.wanted)
            return LATER
        return READ_ALL if outcome == GONE else SENT

    cdef Step redeliver(self, uint64_t sequence, int64_t now_ns) except *:
        cdef RecordView view
        cdef Outcome outcome
        cdef uint64_t count = self.acks.deliveries(sequence) + 1
        if self.tracker.find(sequence) < 0:
            self.redelivery.dequeue(sequence)
            return SENT
        if 0 < self.tracker.max_deliver < count:
            self.redelivery.exceed(sequence)
            return SENT
        outcome = self.look(sequence, &view)
        if outcome == GONE:
            self.acks.lose(sequence)
            return SENT
        if outcome == NEEDS_BLOCK:
            return LATER
        return self.send(&view, count, now_ns)

    cdef Step deliver_new(self, uint64_t sequence, int64_t now_ns) except *:
        cdef RecordView view
        cdef Outcome outcome = self.look(sequence, &view)
        if outcome == GONE:
            self.cursor.passed(sequence)
            self.pending -= 1
            return SENT
        if outcome == NEEDS_BLOCK:
            return LATER
        return self.send(&view, 1, now_ns)

    cdef Outcome look(self, uint64_t sequence, RecordView* view) except? NEEDS_BLOCK:
        """View a message. GONE: it is removed or damaged. NEEDS_BLOCK: it is being fetched."""
        cdef Outcome outcome = self.cursor.look(sequence, view)
        if outcome == NEEDS_BLOCK:
            self.fetch(self.log.wanted)
        return outcome

    cdef Step send(self, RecordView* view, uint64_t count, int64_t now_ns) except *:
        cdef Outgoing out = self.outgoing
        cdef Request* request = NULL
        cdef MatchResult to
        cdef Py_ssize_t size
        cdef int64_t due_ns
        out.compose(
            view, count, self.tracker.delivered_consumer + 1,
            <uint64_t> max(self.pending - (count == 1), 0),
        )
        size = out.size()
        if self.is_push:
            to = self.push.to
        else:
            request = self.asker(size, count, now_ns)
            if request == NULL:
                return NOBODY
            to = <MatchResult> request.to
        due_ns = self.replay.due(view, now_ns) if self.replay.is_on else 0
        if due_ns == 0 and self.is_push:
            due_ns = self.push.due_ns(size, now_ns)
        if due_ns:
            self.resume_ns = due_ns
            return LATER
        if not self.publisher.send(
            to, out.subject, out.subject_len, out.reply, out.reply_len, out.headers,
            out.headers_len, out.data, out.data_len,
        ):
            if self.is_push:
                self.hold_until_ns = now_ns + UNHEARD_NS
                return LATER
            self.requests.drop_head()
            return SENT
        self.sent(view, count, size, now_ns)
        if self.publisher.is_congested:
            self.hold_until_ns = now_ns + CONGESTED_NS
            return LATER
        return SENT

    cdef Request* asker(self, Py_ssize_t size, uint64_t count, int64_t now_ns) except? NULL:
        """Return the request that gets the composed message; NULL: none."""
        cdef PriorityGroups groups = self.requests.groups
        cdef Request* request
        if groups is None:
            return self.requests.ready(size, now_ns)
        request = self.requests.ready_in_groups(
            size, now_ns, self.pending + (count > 1), self.tracker.pending_count
        )
        if request != NULL and groups.policy == PINNED_CLIENT:
            self.outgoing.add_header(groups.pin_line)
        return request

    cdef int sent(
        self, RecordView* view, uint64_t count, Py_ssize_t size, int64_t now_ns
    ) except -1:
        """Note that a message has a recipient: it is delivered."""
        cdef uint64_t sequence = view.sequence
        cdef Py_ssize_t wire_size
        if self.keyed is not None and count == 1:
            self.keyed.hold_below(sequence)
        self.tracker.update_delivered(
            self.tracker.delivered_consumer + 1, sequence, count, now_ns
        )
        self.last_delivered_ns = now_ns
        if self.replay.is_on:
            self.replay.sent(view)
        if count == 1:
            self.cursor.passed(sequence)
            self.pending -= 1
        else:
            self.redelivery.dequeue(sequence)
        if self.tracker.ack_policy != POLICY_NONE:
            self.redelivery.delivered(sequence, count, now_ns)
        else:
            self.acks.release(sequence)
        if not self.is_push:
            return self.requests.served(size, now_ns)
        wire_size = size - self.outgoing.subject_len + len(self.push.subject)
        self.push.sent(size, wire_size, now_ns)
        if self.push.wants_control(wire_size) or (
            self.tracker.ack_policy == POLICY_FLOW_CONTROL and self.push.control is None
            and 0 < self.max_ack_pending <= self.tracker.pending_count
        ):
            self.push.ask_control()
        return 0

    cdef bint ended(self, Step step, int64_t now_ns) except? -1:
        """End the deliveries of this slice. True: there is other work."""
        if step == READ_ALL:
            if self.paused_until_ns == 0:
                self.readers.await_more(self)
                self.replay.read_before(self.cursor.next)
            if self.requests.no_wait_count:
                self.sweep_requests(now_ns, True)
        elif step == NOBODY and self.requests.groups is not None:
            self.readers.await_more(self)      # more pending messages may make a request eligible
        elif step == ACKS_AWAITED and now_ns - self.lost_checked_ns >= LOST_CHECK_NS:
            if not self.is_filtered and self.acks.lose_inside(self.log, LOST_PER_SLICE):
                return True
            self.lost_checked_ns = now_ns
            return self.tracker.pending_count < self.max_ack_pending
        return False

    # Blocks that are not in memory

    cdef bint count_some(self) except? -1:
        """Count for a slice. True: everything is counted."""
        try:
            return self.cursor.count_some(self.readers.visible, COUNT_BUDGET)
        except ColdBlock as cold:
            self.fetch(cold.block)
            return False

    cdef int fetch(self, MsgBlock block) except -1:
        if self.fetching is None:
            self.fetching = self.readers.scheduler.reactor.loop.create_task(self._fetch(block))
        return 0

    async def _fetch(self, block) -> None:
        try:
            await self.readers.store.fetch(block)
        except StoreError:      # the store has logged it
            self.hold_until_ns = self.readers.scheduler.now() + FETCH_AGAIN_NS
        finally:
            self.fetching = None
            self.wake()

    # State for info

    async def counted(self) -> None:
        """Return once `num_pending` is exact, or a block that it needs cannot be read now."""
        while self.cursor.is_counting and not self.is_stopped:
            if self.fetching is not None:
                await asyncio.wait([self.fetching])
                if self.readers.scheduler.now() < self.hold_until_ns < NOT_DUE:
                    return
            elif not self.count_some():
                await asyncio.sleep(0)

    def check_requests(self) -> None:
        """Drop requests that are over, or whose inbox has no subscriber."""
        if not self.is_running and not self.is_stopped:
            self.sweep_requests(self.readers.scheduler.now(), False)

    def delivered(self) -> SequencePair:
        """Return the sequences of the last delivery."""
        return SequencePair(self.tracker.delivered_consumer, self.tracker.delivered_stream)

    def ack_floor(self) -> SequencePair:
        """Return the sequences up to which everything is acknowledged."""
        self.lose_gone()
        self.tracker.settle_floor()
        return SequencePair(self.tracker.floor_consumer, self.tracker.floor_stream)

    cdef int lose_gone(self) except -1:
        """Take out the pending messages that the stream has removed."""
        cdef Py_ssize_t before = self.tracker.pending_count
        if self.is_stopped:
            return 0
        self.acks.lose_front(self.log, LOST_PER_SLICE)
        if not self.is_filtered:
            self.acks.lose_inside(self.log, LOST_PER_SLICE)
        self.note_acked(self.readers.scheduler.now())
        if self.tracker.pending_count < before:
            self.wake()
        return 0

    cdef int note_acked(self, int64_t now_ns) except -1:
        """Note the time of the last acknowledgement."""
        if self.acks.was_acked:
            self.acks.was_acked = False
            self.last_ack_ns = now_ns
        return 0

    def is_needed(self, uint64_t sequence) -> bool:
        """Tell whether the reader needs a message (`Reader.needs`)."""
        return self.needs(sequence)

    # Dead letters: the methods that DeadLetters calls

    def is_owed(self, uint64_t sequence) -> bool:
        """Tell whether the message is a dead letter that has not been settled."""
        return self.redelivery.is_parked(sequence)

    def num_deliveries(self, uint64_t sequence) -> int:
        """Return the number of deliveries of a message."""
        return self.acks.deliveries(sequence)

    def settle_letter(self, uint64_t sequence) -> None:
        """Settle a dead letter whose copy is on disk: it is not pending any more."""
        if not self.is_stopped and self.redelivery.is_parked(sequence):
            self.acks.settle(sequence)
            self.wake()

    def lose_letter(self, uint64_t sequence) -> None:
        """Settle a dead letter that is gone or cannot be read."""
        if not self.is_stopped:
            self.acks.lose(sequence)
            self.wake()

    @property
    def next_sequence(self) -> int:
        """First sequence that was not read yet."""
        return self.cursor.next

    @property
    def is_counting(self) -> bool:
        """Whether `num_pending` is not exact yet."""
        return self.cursor.is_counting

    @property
    def num_pending(self) -> int:
        """Visible messages not delivered yet."""
        return self.cursor.size(self.readers.visible)

    @property
    def num_waiting(self) -> int:
        """Pull requests, after `check_requests`; 0 for push."""
        self.check_requests()
        return self.requests.count

    @property
    def pin_id(self) -> str:
        """Id of the pinned client; empty: there is none."""
        cdef PriorityGroups groups = self.requests.groups
        return "" if groups is None else groups.pin_id.decode()

    @property
    def pinned_ns(self) -> int:
        """Time at which it was pinned; 0: no client is pinned."""
        cdef PriorityGroups groups = self.requests.groups
        return 0 if groups is None else groups.pinned_ns

    @property
    def num_ack_pending(self) -> int:
        """Delivered messages that are not acknowledged."""
        self.lose_gone()
        return self.tracker.pending_count

    @property
    def num_redelivered(self) -> int:
        """Messages that were delivered again."""
        return len(self.tracker.redelivered)

    @property
    def last_request_ns(self) -> int:
        """Time of the last pull request or of the last message to one; 0: never."""
        return self.requests.last_ns

    @property
    def is_active(self) -> bool:
        """Push: the deliver subject has a subscriber. Pull: requests wait."""
        return bool(self.push.is_active) if self.is_push else self.requests.count > 0

    @property
    def memory_bytes(self) -> int:
        """Bytes of the engine, without those of the tracker."""
        return self.cursor.memory_bytes + self.redelivery.num_hints * 16
