"""What a consumer tells of single messages: the ack metric, and the place for advisories.

Source: reference §6.17; schema io.nats.jetstream.metric.v1.consumer_ack.
"""

from typing import Final

from natsd.accounts import Account
from natsd.jetstream.advisories import Events
from natsd.jetstream.names import METRIC_PREFIX

ACK_METRIC_TYPE: Final = "io.nats.jetstream.metric.v1.consumer_ack"


class ConsumerEvents:
    """One consumer's; the engine's EngineEvents."""

    def __init__(self, events: Events, account: Account, stream: str, consumer: str) -> None:
        self._events = events
        self._account = account
        self._stream = stream
        self._consumer = consumer

    def sampled(
        self, sequence: int, consumer_sequence: int, deliveries: int, ack_time_ns: int
    ) -> None:
        """Publish the ack metric."""
        self._events.publish(
            self._account,
            f"{METRIC_PREFIX}.CONSUMER.ACK.{self._stream}.{self._consumer}",
            ACK_METRIC_TYPE,
            {
                "stream": self._stream,
                "consumer": self._consumer,
                "consumer_seq": consumer_sequence,
                "stream_seq": sequence,
                "ack_time": max(ack_time_ns, 1),
                "deliveries": deliveries,
                "domain": self._events.domain or None,
            },
        )

    # Advisories: each would be published as `sampled` does it.

    def max_deliveries(self, sequence: int, deliveries: int) -> None:
        """See EngineEvents; nothing is published."""

    def nacked(self, sequence: int, consumer_sequence: int, deliveries: int) -> None:
        """See EngineEvents; nothing is published."""

    def terminated(
        self, sequence: int, consumer_sequence: int, deliveries: int, reason: str
    ) -> None:
        """See EngineEvents; nothing is published."""
