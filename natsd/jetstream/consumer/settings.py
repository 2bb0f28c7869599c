"""What of a consumer's configuration its delivery needs, and whom the delivery tells what is rare.

All durations are nanoseconds; 0 (or less) is "none" or "no limit" wherever a number is a limit.

Source: ConsumerConfig, reference §6.5; advisories and metrics, §6.17.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from natsd.store.consumer_state import AckPolicy

ACK_WAIT_NS: Final = 30_000_000_000
MAX_ACK_PENDING: Final = 1000
MAX_WAITING: Final = 512
KEY_LOOK_AHEAD: Final = 131_072
# The largest message where the stream has no limit of its own: the default max_payload.
RATE_BURST_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """A new one replaces the one before as a whole: `ConsumerEngine.configure`.

    `ack_policy`, `key_token` and whether there is a `deliver_subject` never change. With
    `backoff_ns` the wait before the n-th redelivery is its n-th item, the last repeats, and
    `ack_wait_ns` is not looked at. `filters` empty: every message.
    """

    stream: str
    ack_policy: AckPolicy = AckPolicy.EXPLICIT
    ack_wait_ns: int = ACK_WAIT_NS
    backoff_ns: tuple[int, ...] = ()
    max_deliver: int = 0
    max_ack_pending: int = MAX_ACK_PENDING
    filters: tuple[str, ...] = ()
    headers_only: bool = False
    replay_original: bool = False
    sample_percent: int = 0
    # One message of a key at a time: the token that is the key, from 1; messages that may wait.
    key_token: int = 0
    key_look_ahead: int = KEY_LOOK_AHEAD

    # Pull: `deliver_subject` is None
    max_waiting: int = MAX_WAITING
    max_request_batch: int = 0
    max_request_expires_ns: int = 0
    max_request_bytes: int = 0

    # Push
    deliver_subject: str | None = None
    flow_control: bool = False
    idle_heartbeat_ns: int = 0
    rate_limit_bps: int = 0  # bits
    rate_burst_bytes: int = RATE_BURST_BYTES


class EngineEvents(Protocol):
    """Told while messages are acknowledged or delivered: may publish, must not wait."""

    def sampled(
        self, sequence: int, consumer_sequence: int, deliveries: int, ack_time_ns: int
    ) -> None:
        """A message was acknowledged, and `sample_percent` has chosen it."""

    def max_deliveries(self, sequence: int, deliveries: int) -> None:
        """A message was delivered as often as it may be, and was not acknowledged."""

    def nacked(self, sequence: int, consumer_sequence: int, deliveries: int) -> None:
        """A client refused a message that was pending."""

    def terminated(
        self, sequence: int, consumer_sequence: int, deliveries: int, reason: str
    ) -> None:
        """A pending message is never to be delivered again: a client said so, or it is gone."""


class DeadLetterBox(Protocol):
    """Told of messages that stay pending and are delivered no more: may not send at once."""

    def add(self, sequence: int, text: bytes | None = None) -> None:
        """It was delivered as often as it may be; or, with a `text`, a client terminated it."""

    def clear(self) -> None:
        """The engine begins anew, and says again what is dead."""


class NoEvents:
    """Nobody listens."""

    def sampled(
        self, sequence: int, consumer_sequence: int, deliveries: int, ack_time_ns: int
    ) -> None:
        """See EngineEvents."""

    def max_deliveries(self, sequence: int, deliveries: int) -> None:
        """See EngineEvents."""

    def nacked(self, sequence: int, consumer_sequence: int, deliveries: int) -> None:
        """See EngineEvents."""

    def terminated(
        self, sequence: int, consumer_sequence: int, deliveries: int, reason: str
    ) -> None:
        """See EngineEvents."""
