from collections.abc import Callable, Sequence

from natsd.core.routing import Sink
from natsd.jetstream.consumer.settings import DeadLetterBox, EngineEvents, EngineSettings
from natsd.jetstream.stream.state import Reader, ReaderFilters, StreamReaders
from natsd.store.consumer.consumer_state import SequencePair
from natsd.store.consumer.consumer_store import ConsumerStore
from natsd.store.consumer.memory_consumer_store import MemoryConsumerStore
from natsd.store.consumer.staged_consumer_store import StagedConsumerStore
from natsd.store.consumer.tracking import ConsumerTracker
from natsd.store.log.message_log import MessageLog

class PendingCursor:
    def __init__(self, log: MessageLog) -> None: ...
    @property
    def next(self) -> int: ...
    @property
    def must_count(self) -> bool: ...
    @property
    def is_counting(self) -> bool: ...
    @property
    def memory_bytes(self) -> int: ...
    def begin_at(self, next_sequence: int, filters: Sequence[str]) -> None: ...
    def count_slice(self, visible: int, budget: int) -> bool: ...
    def tell_appeared(self, sequence: int) -> None: ...
    def tell_vanished(self, sequence: int) -> None: ...
    def num_pending(self, visible: int) -> int: ...

def key_name(subject: bytes, token: int) -> bytes:
    """Return the key of a subject. For tests."""

class Redelivery:
    def __init__(
        self, tracker: ConsumerTracker, exceeded: Callable[[int, int], object]
    ) -> None: ...
    @property
    def num_hints(self) -> int: ...

class Acks: ...

class Inbox:
    # Subscribe the sinks to these subjects. `ack_sink`: `$JS.ACK.<stream>.<consumer>.>` and
    # `$JS.ACK.<domain|_>.<hash>.<stream>.<consumer>.>`. `pull_sink`:
    # `$JS.API.CONSUMER.MSG.NEXT.<s>.<c>`, for a push consumer too (it answers 409).
    # `flow_control_sink`: `$JS.FC.<stream>.<consumer>.*` and
    # `$JS.FC.<domain|_>.<hash>.<stream>.<consumer>.>`.
    @property
    def ack_sink(self) -> Sink: ...
    @property
    def pull_sink(self) -> Sink: ...
    @property
    def flow_control_sink(self) -> Sink: ...

CONSUMER_DELETED: str
SERVER_SHUTDOWN: str

class ConsumerEngine(Reader):
    def __init__(
        self,
        readers: StreamReaders,
        name: str,
        settings: EngineSettings,
        store: ConsumerStore | MemoryConsumerStore | StagedConsumerStore,
        events: EngineEvents,
        wanted: ReaderFilters | None = None,
    ) -> None:
        """`wanted` are the settings' filters, listed with the readers; None: `start` lists them.

        The engine takes the filters out again when it is stopped.
        """

    @property
    def name(self) -> str: ...
    @property
    def settings(self) -> EngineSettings: ...
    @property
    def inbox(self) -> Inbox: ...
    @property
    def tracker(self) -> ConsumerTracker: ...
    @property
    def is_stopped(self) -> bool: ...
    def configure(self, settings: EngineSettings, wanted: ReaderFilters | None = None) -> None:
        """Apply new settings; with new filters, pending messages are counted anew.

        `wanted` are these filters, if they are new, listed with the readers already. Raises
        ValueError if a setting that never changes would change.
        """

    def copy_dead_letters(self, letters: DeadLetterBox | None) -> None:
        """Have `letters` copy dead letters from now on.

        None: nothing copies them, and those not copied yet are settled as if dead letters had never
        been kept.
        """

    def start(
        self,
        next_sequence: int,
        last_per_subject: Sequence[int] | None = None,
        resume: int = 0,
    ) -> None:
        """Deliver from `next_sequence` on, and register with the readers.

        With `last_per_subject`, deliver those messages first, in order, then go on behind `resume`
        (0: behind the last of them). The store must know where the consumer starts
        (`set_starting_sequence`). May be called again after `reset`.
        """

    def begin_anew(
        self,
        next_sequence: int,
        last_per_subject: Sequence[int] | None = None,
        resume: int = 0,
    ) -> None:
        """Begin as with `start`, after a reset of the store; waiting requests stay.

        Until `go_on`, nothing is delivered and no message of an interest stream is released.
        """

    def go_on(self, is_durable: bool) -> None:
        """Go on after `begin_anew`; if the reset is not on disk, no message is released yet."""

    def stop(self, status: str | None = None) -> None:
        """Deliver and take nothing more, and take the reader from the readers.

        Waiting requests are answered 409 with `status`: CONSUMER_DELETED, SERVER_SHUTDOWN, or None
        for no answer.
        """

    def pause(self, until_ns: int) -> None:
        """Deliver nothing before `until_ns`."""

    def resume(self) -> None:
        """End the pause."""

    def unpin(self, group: str) -> None:
        """Unpin the pinned client of a priority group, if there is one."""

    def mark_with(self, age: Callable[[], bytes]) -> None:
        """Have messages, heartbeats and statuses of requests carry the line that `age` returns."""

    def set_push_interest(self, is_interested: bool) -> None:
        """Note whether the deliver subject (and group) has a subscriber."""

    def delivered(self) -> SequencePair: ...
    def ack_floor(self) -> SequencePair: ...
    def is_needed(self, sequence: int) -> bool:
        """Tell whether the reader needs a message (`Reader.needs`)."""

    def check_requests(self) -> None:
        """Drop requests that are over, or whose inbox has no subscriber."""

    def is_owed(self, sequence: int) -> bool:
        """Tell whether the message is a dead letter that has not been settled."""

    def num_deliveries(self, sequence: int) -> int: ...
    def settle_letter(self, sequence: int) -> None:
        """Settle a dead letter whose copy is on disk: it is not pending any more."""

    def lose_letter(self, sequence: int) -> None:
        """Settle a dead letter that is gone or cannot be read."""

    @property
    def next_sequence(self) -> int: ...
    @property
    def num_pending(self) -> int:
        """Visible messages not delivered yet; approximate while `is_counting`."""

    @property
    def is_counting(self) -> bool: ...
    async def counted(self) -> None:
        """Return once `num_pending` is exact."""

    @property
    def num_waiting(self) -> int:
        """Pull requests, after `check_requests`; 0 for push."""

    @property
    def pin_id(self) -> str:
        """Id of the pinned client; empty: there is none."""

    @property
    def pinned_ns(self) -> int:
        """Time at which it was pinned; 0: no client is pinned."""

    @property
    def num_ack_pending(self) -> int: ...
    @property
    def num_redelivered(self) -> int: ...
    # wall clock in ns; 0: never
    @property
    def last_delivered_ns(self) -> int: ...
    @property
    def last_ack_ns(self) -> int: ...
    @property
    def last_request_ns(self) -> int:
        """Time of the last pull request or of the last message to one, in ns; 0: never."""

    @property
    def is_active(self) -> bool:
        """Push: the deliver subject has a subscriber. Pull: requests wait."""

    @property
    def paused_until_ns(self) -> int:
        """End of the pause, in ns; 0: not paused."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of the engine, without those of the tracker."""
