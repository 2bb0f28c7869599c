"""The settings of a consumer's delivery, and the interfaces to which the engine reports events.

All durations are nanoseconds; 0 (or less) is "none" or "no limit" wherever a number is a limit.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

from natsd.store.consumer.consumer_state import AckPolicyCode

ACK_WAIT_NS: Final = 30_000_000_000
MAX_ACK_PENDING: Final = 1000
MAX_WAITING: Final = 512
KEY_LOOK_AHEAD: Final = 131_072
# Largest message of a stream without a limit of its own: the default max_payload.
RATE_BURST_BYTES: Final = 1 << 20


class PriorityPolicyCode(IntEnum):
    """The ways to choose among pull requests; see priority_groups.pyx."""

    NONE = 0
    OVERFLOW = 1
    PINNED_CLIENT = 2
    PRIORITIZED = 3


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The settings of an engine; `ConsumerEngine.configure` replaces them as a whole.

    `ack_policy`, `key_token` and whether there is a `deliver_subject` never change. With
    `backoff_ns`, its n-th item is the wait before the n-th redelivery, its last item repeats, and
    `ack_wait_ns` is not used. `filters` empty: every message.
    """

    stream: str
    ack_policy: AckPolicyCode = AckPolicyCode.EXPLICIT
    ack_wait_ns: int = ACK_WAIT_NS
    backoff_ns: tuple[int, ...] = ()
    max_deliver: int = 0
    max_ack_pending: int = MAX_ACK_PENDING
    filters: tuple[str, ...] = ()
    headers_only: bool = False
    replay_original: bool = False
    sample_percent: int = 0
    # One message of a key at a time: the token that is the key, counted from 1 (0: no keys), and
    # how many messages may wait.
    key_token: int = 0
    key_look_ahead: int = KEY_LOOK_AHEAD

    # Settings of a pull consumer, whose `deliver_subject` is None
    max_waiting: int = MAX_WAITING
    max_request_batch: int = 0
    max_request_expires_ns: int = 0
    max_request_bytes: int = 0
    priority_policy: PriorityPolicyCode = PriorityPolicyCode.NONE
    priority_groups: tuple[str, ...] = ()
    priority_timeout_ns: int = 0

    # Settings of a push consumer
    deliver_subject: str | None = None
    flow_control: bool = False
    idle_heartbeat_ns: int = 0
    rate_limit_bps: int = 0  # bits per second
    rate_burst_bytes: int = RATE_BURST_BYTES


class EngineEvents(Protocol):
    """The events of an engine, reported while it acknowledges or delivers.

    The methods may publish, but must not wait.
    """

    def sampled(
        self, sequence: int, consumer_sequence: int, deliveries: int, ack_time_ns: int
    ) -> None:
        """Note that a message chosen by `sample_percent` was acknowledged."""

    def max_deliveries(self, sequence: int, deliveries: int) -> None:
        """Note that a message was delivered as often as allowed and not acknowledged."""

    def nacked(self, sequence: int, consumer_sequence: int, deliveries: int) -> None:
        """Note that a client refused a pending message."""

    def terminated(
        self, sequence: int, consumer_sequence: int, deliveries: int, reason: str
    ) -> None:
        """Note that a pending message is never delivered again: terminated, or removed."""

    def pinned(self, group: str, pin_id: str) -> None:
        """Note that a client was pinned for a priority group."""

    def unpinned(self, group: str, reason: str) -> None:
        """Note that the pin has ended; the reason is `timeout` or `admin`."""


class DeadLetterBox(Protocol):
    """The copier of messages that stay pending and are not delivered any more.

    The methods may not send at once.
    """

    def add(self, sequence: int, text: bytes | None = None) -> None:
        """Take a message that was delivered as often as allowed, or terminated with a `text`."""

    def clear(self) -> None:
        """Forget all messages: the engine begins anew and adds them again."""
