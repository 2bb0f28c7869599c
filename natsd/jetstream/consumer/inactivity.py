"""The removal of consumers that are not used.

    push   no subscriber on the deliver subject ── threshold ──▶ removed; an ack starts it anew
    pull   no request, no ack, no delivery      ── threshold ──▶ removed, unless requests wait, or
                                                                 a client may still be at work

- An ephemeral consumer always has a threshold: five seconds, plus up to one second at random.
- A pull consumer's threshold is up to one second longer than configured, so that a thousand of them
  are not removed at once.
- A delivered message counts as in use until its ack wait is over; only then the threshold begins.

Source: nats-server's `updateInactiveThreshold` and `deleteNotActive`.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.times import bounded_ns
from natsd.store.consumer.consumer_state import ConsumerState

EPHEMERAL_NS: Final = 5_000_000_000
JITTER_MS: Final = (100, 1_000)


class Activity(Protocol):
    """What an engine knows about its use. Times are wall clock in ns; 0: never."""

    @property
    def num_waiting(self) -> int:
        """Waiting pull requests."""

    @property
    def last_request_ns(self) -> int:
        """Time of the last pull request or of the last message to one."""

    @property
    def last_ack_ns(self) -> int:
        """Time of the last acknowledgement."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """The time in ns for which a consumer may be unused; 0: for ever."""

    span_ns: int

    @classmethod
    def of(cls, config: ConsumerConfig, chance: int) -> "Threshold":
        """Return the threshold of a consumer; the jitter is taken from `chance`, any number."""
        lowest, highest = JITTER_MS
        jitter_ns = (lowest + chance % (highest - lowest)) * 1_000_000
        if config.inactive_threshold <= 0:
            return cls(0 if config.durable_name else EPHEMERAL_NS + jitter_ns)
        threshold_ns = bounded_ns(config.inactive_threshold)
        return cls(threshold_ns + (0 if config.deliver_subject else jitter_ns))


def with_threshold(config: ConsumerConfig) -> ConsumerConfig:
    """Return the configuration; that of an ephemeral consumer gets a threshold."""
    if config.durable_name or config.inactive_threshold > 0:
        return config
    return config.model_copy(update={"inactive_threshold": EPHEMERAL_NS})


def busy_until_ns(state: ConsumerState, config: ConsumerConfig) -> int:
    """Return the end of the last ack wait of the pending messages, in ns; 0: none is pending."""
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
    """Return when to check its use again, in ns; 0: the consumer is removed now.

    `used_ns`: when it was created, changed, or lost its last subscriber. `busy_until_ns`: the end
    of the last ack wait of the pending messages.
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
