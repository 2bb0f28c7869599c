"""The dead letters of one consumer: messages that no client could handle are copied, then settled.

    redelivery: delivered `max_deliver` times ─┐
    acks: +TERM ───────────────────────────────┴▶ add ─▶ queue ─▶ copy, with an id and a reply ─┐
                     the stream that captures the subject ◀─────────────────────────────────────┘
                                             │ PubAck: the copy is on disk
                                             ▼
                     settle: as if it had been acknowledged

Promise
- Until its copy is acknowledged by the stream that captures it, a message stays pending and is not
  delivered; after that it is settled as by an acknowledgement. So after a crash at any point the
  copy is made again: a terminated message is marked in the consumer's state, and a message that was
  delivered too often is found to be so again. A copy that was on disk already is recognized by its
  id.
- A copy that is refused, or not answered in ANSWER_NS, is tried again: after RETRY_NS_MIN, then
  after twice as long each time, up to RETRY_NS_MAX. That is logged once, until no copy is missing
  any more. A copy that is refused for itself does not stop the others.
- A message that is removed or damaged when its turn comes is settled without a copy.
- Memory: some 200 bytes for each message to copy; these are pending, so `max_ack_pending` bounds
  them. At most WINDOW copies are on their way.
- Nothing is sent from inside of a `deliver`.
"""

import json
import logging
import re
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from natsd.jetstream.consumer.dead_letter_message import Death, letter_headers, reason_text
from natsd.jetstream.stream.state import Alarm, Job
from natsd.store.errors import MessageDamaged, MessageNotFound, StoreEOF, StoreError

if TYPE_CHECKING:
    import asyncio

    from natsd.core.routing import Subscription
    from natsd.jetstream.account_resources import AccountResources
    from natsd.jetstream.stream.state import StreamReaders
    from natsd.store.codec.records import StoredMessage

_logger = logging.getLogger(__name__)
_SEQUENCE: Final = re.compile(r"[0-9]{1,20}")

MAX_DELIVER: Final = "max_deliver"
TERMINATED: Final = "terminated"

WINDOW: Final = 32
SENT_PER_SLICE: Final = 32
TEXTS_MAX: Final = 1_000
"""Most reasons in clients' own words that are kept."""
ANSWER_NS: Final = 5_000_000_000
RETRY_NS_MIN: Final = 100_000_000
RETRY_NS_MAX: Final = 30_000_000_000


class Owing(Protocol):
    """The engine of the consumer."""

    def is_owed(self, sequence: int) -> bool:
        """Tell whether the message is pending and waits for its copy."""

    def num_deliveries(self, sequence: int) -> int:
        """Return the number of deliveries of a message."""

    def settle_letter(self, sequence: int) -> None:
        """Settle a message whose copy is on disk."""

    def lose_letter(self, sequence: int) -> None:
        """Settle a message that is gone or damaged."""


class DeadLetters:
    """The copying of one consumer's dead letters, from the engine's `add` until `close`."""

    def __init__(
        self,
        account: "AccountResources",
        readers: "StreamReaders",
        consumer: str,
        subject: str,
        engine: Owing,
        inbox: str,
    ) -> None:
        """Keep what is needed; `inbox` is a subject for the answers to this consumer alone."""
        scheduler = account.jetstream.scheduler
        self.subject = subject
        self._consumer = consumer
        self._readers = readers
        self._engine = engine
        self._publisher = account.publisher
        self._client = account.account.internal_client
        self._now_ns: Callable[[], int] = scheduler.now_ns
        self._job = Job(scheduler, self._work)
        self._alarm = Alarm(scheduler, lambda _now_ns: self._job.submit())
        self._inbox = inbox
        self._answers: Subscription | None = None
        self._queue: deque[int] = deque()
        self._reasons: dict[int, str] = {}  # of terminated messages
        # sequence -> time at which its answer is due, in that order
        self._flying: dict[int, int] = {}
        self._loading: asyncio.Task[None] | None = None
        self._wait_ns = 0
        self._resume_ns = 0
        self._is_told = False
        self._is_closed = False

    @property
    def count(self) -> int:
        """Number of messages to copy; some of them may have been settled otherwise."""
        return len(self._queue) + len(self._flying)

    def add(self, sequence: int, text: bytes | None = None) -> None:
        """Have a pending message copied.

        `text` is the client's reason if a client terminated it; None: it was delivered too often.
        """
        if text is not None:
            words = reason_text(text) if len(self._reasons) < TEXTS_MAX else ""
            self._reasons[sequence] = f"{TERMINATED}: {words}" if words else TERMINATED
        self._queue.append(sequence)
        self._job.submit()

    def clear(self) -> None:
        """Forget all messages: the consumer begins anew and adds them again."""
        self._queue.clear()
        self._flying.clear()
        self._reasons.clear()

    def close(self) -> None:
        """Stop copying."""
        self._is_closed = True
        self.clear()
        self._alarm.cancel()
        if self._loading is not None:
            self._loading.cancel()
        if self._answers is not None:
            self._client.unsubscribe(self._answers)

    # Sending

    def _work(self, now_ns: int) -> bool:
        """Copy a slice. Returns whether there is more."""
        if self._is_closed:
            return False
        self._time_out(now_ns)
        left = SENT_PER_SLICE
        while left and self._may_send(now_ns):
            left -= 1
            self._send_next(now_ns)
        self._set_alarm(now_ns)
        return self._may_send(now_ns)

    def _may_send(self, now_ns: int) -> bool:
        return (
            bool(self._queue)
            and now_ns >= self._resume_ns
            and len(self._flying) < WINDOW
            and self._loading is None
        )

    def _send_next(self, now_ns: int) -> None:
        sequence = self._queue[0]
        if not self._engine.is_owed(sequence):
            self._forget(self._queue.popleft())
            return
        try:
            message: StoredMessage | None = self._readers.log.load(sequence)
        except (MessageNotFound, StoreEOF, MessageDamaged) as error:
            _logger.error("JetStream: %s: dead letter %d is not copied: %s", self, sequence, error)
            self._forget(self._queue.popleft())
            self._engine.lose_letter(sequence)
            return
        if message is None:
            self._load(sequence)
            return
        self._queue.popleft()
        self._flying[sequence] = now_ns + ANSWER_NS
        if not self._publish(message):
            self._refused(sequence, "no stream captures the subject", now_ns)

    def _publish(self, message: "StoredMessage") -> int:
        """Send a copy; return the number of recipients."""
        if self._answers is None:
            self._answers = self._client.subscribe(f"{self._inbox}.*", self._answered)
        death = Death(
            self._readers.name,
            self._consumer,
            self._reasons.get(message.sequence, MAX_DELIVER),
            self._engine.num_deliveries(message.sequence),
        )
        return self._publisher.publish(
            self.subject.encode(),
            message.data,
            f"{self._inbox}.{message.sequence}".encode(),
            letter_headers(message, death),
        )

    def _load(self, sequence: int) -> None:
        """Load a message; go on when it is in memory."""
        loop = self._readers.scheduler.reactor.loop
        self._loading = loop.create_task(self._load_block(sequence))

    async def _load_block(self, sequence: int) -> None:
        try:
            await self._readers.store.load(sequence)
        except (MessageNotFound, StoreEOF, MessageDamaged):
            pass  # `_send_next` finds the same
        except StoreError as error:
            self._put_off(sequence, str(error), self._now_ns())
        finally:
            self._loading = None
            self._job.submit()

    # Answers

    def _answered(self, subject: str, _reply: str | None, _headers: bytes, body: bytes) -> None:
        """Handle the answer to a copy, perhaps to one whose answer was due earlier."""
        number = subject.rpartition(".")[2]
        if self._is_closed or _SEQUENCE.fullmatch(number) is None:
            return
        sequence = int(number)
        if why := why_refused(body):
            if sequence in self._flying:
                self._refused(sequence, why, self._now_ns())
        else:
            self._wait_ns = 0
            self._flying.pop(sequence, None)
            self._forget(sequence)
            self._engine.settle_letter(sequence)
        self._job.submit()

    def _time_out(self, now_ns: int) -> None:
        """Have copies whose answer is overdue sent again."""
        while self._flying:
            sequence, due_ns = next(iter(self._flying.items()))
            if due_ns > now_ns:
                return
            self._refused(sequence, "no answer", now_ns)

    def _refused(self, sequence: int, why: str, now_ns: int) -> None:
        del self._flying[sequence]
        self._queue.append(sequence)
        self._put_off(sequence, why, now_ns)

    def _put_off(self, sequence: int, why: str, now_ns: int) -> None:
        """Wait before the next copy, longer each time; several refusals at once count as one."""
        if now_ns >= self._resume_ns:
            self._wait_ns = min(max(2 * self._wait_ns, RETRY_NS_MIN), RETRY_NS_MAX)
            self._resume_ns = now_ns + self._wait_ns
        if not self._is_told:
            self._is_told = True
            _logger.warning(
                "JetStream: %s: dead letter %d is not copied yet, %d are owed: %s",
                self,
                sequence,
                self.count,
                why,
            )

    def _forget(self, sequence: int) -> None:
        self._reasons.pop(sequence, None)
        if self.count == 0:
            self._is_told = False

    def _set_alarm(self, now_ns: int) -> None:
        """Set the alarm for the next overdue answer or the end of a wait."""
        due = [next(iter(self._flying.values()))] if self._flying else []
        if self._queue and self._resume_ns > now_ns:
            due.append(self._resume_ns)
        if due:
            self._alarm.set(min(due))
        else:
            self._alarm.cancel()

    def __repr__(self) -> str:
        return f"consumer {self._readers.name} > {self._consumer}, dead letters to {self.subject}"


def why_refused(body: bytes) -> str:
    """Return the reason why an answer to a publish is no PubAck; empty: it is a PubAck."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return "an answer that is no PubAck"
    if not isinstance(answer, dict) or "error" in answer or not answer.get("seq"):
        error = answer.get("error") if isinstance(answer, dict) else None
        text = error.get("description") if isinstance(error, dict) else None
        return str(text or "an answer that is no PubAck")
    return ""
