"""When a consumer that nobody uses is to go.

    push   nobody listens on the deliver subject ── threshold ──▶ it goes; an ack starts it anew
    pull   no request, no ack, no delivery       ── threshold ──▶ it goes, unless requests wait, or
                                                                  a client may still be at work

- An ephemeral consumer has a threshold always: five seconds, and up to one more by chance.
- A pull consumer's threshold is up to one second longer than what is asked for, so that a thousand
  of them do not go at once.
- What a client was given counts until its ack wait is over: only then the threshold begins.

Source: reference §6.5, §6.9; nats-server's updateInactiveThreshold, deleteNotActive.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.times import bounded_ns
from natsd.store.consumer_state import ConsumerState

EPHEMERAL_NS: Final = 5_000_000_000
JITTER_MS: Final = (100, 1_000)


class Activity(Protocol):
    """What an engine knows of the use that is made of it. Times are wall clock; 0: never."""

    @property
    def num_waiting(self) -> int: ...
    @property
    def last_request_ns(self) -> int: ...
    @property
    def last_ack_ns(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Threshold:
    """How long a consumer may be unused; 0: for ever."""

    span_ns: int

    @classmethod
    def of(cls, config: ConsumerConfig, chance: int) -> "Threshold":
        """`chance` is any number: the jitter is taken from it."""
        lowest, highest = JITTER_MS
        jitter_ns = (lowest + chance % (highest - lowest)) * 1_000_000
        if config.inactive_threshold <= 0:
            return cls(0 if config.durable_name else EPHEMERAL_NS + jitter_ns)
        threshold_ns = bounded_ns(config.inactive_threshold)
        return cls(threshold_ns + (0 if config.deliver_subject else jitter_ns))


def with_threshold(config: ConsumerConfig) -> ConsumerConfig:
    """An ephemeral consumer's configuration says how long it lives."""
    if config.durable_name or config.inactive_threshold > 0:
        return config
    return config.model_copy(update={"inactive_threshold": EPHEMERAL_NS})


def busy_until_ns(state: ConsumerState, config: ConsumerConfig) -> int:
    """When the last ack wait of a pending message is over; 0: none is pending."""
    waits_ns = config.backoff or [config.ack_wait]
    return max(
        (
            pending.time_ns + waits_ns[min(state.redelivered.get(sequence, 0), len(waits_ns) - 1)]
            for sequence, pending in state.pending.items()
        ),
        default=0,
    )


def looks_again_at(
    threshold: Threshold, used_ns: int, activity: Activity, busy_until_ns: int, *, now_ns: int
) -> int:
    """When its use is to be looked at again; 0: the consumer goes now.

    `used_ns`: when it came, was changed, or lost its listener. `busy_until_ns`: when the last ack
    wait of a message that is pending is over.
    """
    span_ns = threshold.span_ns
    last_ns = max(used_ns, activity.last_request_ns, activity.last_ack_ns)
    if last_ns + span_ns > now_ns:
        return last_ns + span_ns
    if activity.num_waiting:
        return now_ns + span_ns
    if busy_until_ns and busy_until_ns + span_ns > now_ns:
        return busy_until_ns + span_ns
    return 0
