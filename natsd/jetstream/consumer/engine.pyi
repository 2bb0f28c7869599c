from collections.abc import Sequence

from natsd.jetstream.consumer.settings import DeadLetterBox, EngineEvents, EngineSettings
from natsd.jetstream.consumer.sinks import Intake
from natsd.jetstream.stream.core import StreamCore
from natsd.jetstream.stream.slot_readers import ReaderFilters
from natsd.store.consumer_state import SequencePair
from natsd.store.consumer_store import ConsumerStore
from natsd.store.memory_consumer_store import MemoryConsumerStore

CONSUMER_DELETED: str
SERVER_SHUTDOWN: str

class ConsumerEngine(Intake):
    def __init__(
        self,
        core: StreamCore,
        name: str,
        settings: EngineSettings,
        store: ConsumerStore | MemoryConsumerStore,
        events: EngineEvents,
        wanted: ReaderFilters | None = None,
    ) -> None:
        """`wanted`: the settings' filters, listed with the core; None: that is done at the start.
        What the engine was given it takes out again when it is stopped."""

    @property
    def name(self) -> str: ...
    @property
    def settings(self) -> EngineSettings: ...
    def configure(self, settings: EngineSettings, wanted: ReaderFilters | None = None) -> None:
        """Take new settings; new filters have pending counted anew, and registered with the core.
        `wanted`: these filters, if they are others than before, listed with the core already.

        Raises ValueError if what never changes would change.
        """

    def keep_letters(self, letters: DeadLetterBox | None) -> None:
        """`letters` copies what is dead from now on; None: nobody does, and what was owed is let
        go of as if nobody ever had."""

    def start(
        self,
        next_sequence: int,
        last_per_subject: Sequence[int] | None = None,
        resume: int = 0,
    ) -> None:
        """Deliver from `next_sequence` on. With `last_per_subject`, in order, deliver those first,
        then go on behind `resume` (0: behind the last of them). The store must say where it starts
        (`set_starting_sequence`). Registers with the core. May be called again after `reset`."""

    def begin_anew(
        self,
        next_sequence: int,
        last_per_subject: Sequence[int] | None = None,
        resume: int = 0,
    ) -> None:
        """As `start`, once the store was reset; waiting requests wait on. Until `go_on` nothing is
        delivered, and an interest stream lets go of nothing."""

    def go_on(self, is_durable: bool) -> None:
        """What `begin_anew` began is on disk; or is not, and then nothing is let go of yet."""

    def stop(self, status: str | None = None) -> None:
        """Deliver and take nothing more; waiting requests are answered 409 with `status`:
        CONSUMER_DELETED, SERVER_SHUTDOWN, or None for no answer. Takes the reader from the core."""

    def pause(self, until_ns: int) -> None:
        """Deliver nothing before that time."""

    def resume(self) -> None:
        """Not paused any more."""

    def unpin(self, group: str) -> None:
        """Nobody is the pinned client of a priority group any more, if somebody was."""

    def set_push_interest(self, is_interested: bool) -> None:
        """Somebody listens, or nobody does any more, on the deliver subject (and group)."""

    def delivered(self) -> SequencePair: ...
    def ack_floor(self) -> SequencePair: ...
    def is_needed(self, sequence: int) -> bool:
        """`Reader.needs`."""

    def check_requests(self) -> None:
        """Drop requests that are over, or whose inbox nobody listens to."""

    def is_owed(self, sequence: int) -> bool:
        """It is a dead letter that has not been settled."""

    def num_deliveries(self, sequence: int) -> int: ...
    def settle_letter(self, sequence: int) -> None:
        """Its copy is on disk: it is pending no more."""

    def lose_letter(self, sequence: int) -> None:
        """It is gone, or cannot be read."""

    @property
    def next_sequence(self) -> int: ...
    @property
    def num_pending(self) -> int:
        """Visible messages not delivered yet. While `is_counting`, as far as is known."""

    @property
    def is_counting(self) -> bool: ...
    async def counted(self) -> None:
        """Returns once `num_pending` is exact."""

    @property
    def num_waiting(self) -> int:
        """Pull requests, after `check_requests`; 0 for push."""

    @property
    def pin_id(self) -> str:
        """Of the pinned client; empty: there is none."""

    @property
    def pinned_ns(self) -> int:
        """When it was pinned; 0: it was not."""

    @property
    def num_ack_pending(self) -> int: ...
    @property
    def num_redelivered(self) -> int: ...
    # Wall clock; 0: never
    @property
    def last_delivered_ns(self) -> int: ...
    @property
    def last_ack_ns(self) -> int: ...
    @property
    def last_request_ns(self) -> int:
        """Of pull: when a request came in, or a message went out."""

    @property
    def is_active(self) -> bool:
        """Push: somebody listens. Pull: requests wait."""

    @property
    def paused_until_ns(self) -> int:
        """0: not paused."""

    @property
    def memory_bytes(self) -> int:
        """Besides the tracker's."""
