"""What a consumer tells of single messages: advisories, and the ack metric.

An event is published in the account, and built only if somebody listens.

Source: reference §6.17; the schemas io.nats.jetstream.advisory.v1.{max_deliver,nak,terminated} and
io.nats.jetstream.metric.v1.consumer_ack.
"""

from typing import Final

from natsd.accounts import Account
from natsd.jetstream.advisories import ADVISORY_TYPE, Events
from natsd.jetstream.names import ADVISORY_PREFIX, METRIC_PREFIX

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
        self._publish(
            f"{METRIC_PREFIX}.CONSUMER.ACK",
            ACK_METRIC_TYPE,
            consumer_seq=consumer_sequence,
            stream_seq=sequence,
            ack_time=max(ack_time_ns, 1),
            deliveries=deliveries,
        )

    def max_deliveries(self, sequence: int, deliveries: int) -> None:
        """See EngineEvents."""
        self._advise("MAX_DELIVERIES", "max_deliver", stream_seq=sequence, deliveries=deliveries)

    def nacked(self, sequence: int, consumer_sequence: int, deliveries: int) -> None:
        """See EngineEvents."""
        self._advise(
            "MSG_NAKED",
            "nak",
            consumer_seq=consumer_sequence,
            stream_seq=sequence,
            deliveries=deliveries,
        )

    def terminated(
        self, sequence: int, consumer_sequence: int, deliveries: int, reason: str
    ) -> None:
        """See EngineEvents."""
        self._advise(
            "MSG_TERMINATED",
            "terminated",
            consumer_seq=consumer_sequence,
            stream_seq=sequence,
            deliveries=deliveries,
            reason=reason or None,
        )

    def _advise(self, event: str, kind: str, **fields: object) -> None:
        self._publish(f"{ADVISORY_PREFIX}.CONSUMER.{event}", f"{ADVISORY_TYPE}.{kind}", **fields)

    def _publish(self, prefix: str, event_type: str, **fields: object) -> None:
        """Tell it of the consumer; `fields` stand between its name and the domain."""
        named = {"stream": self._stream, "consumer": self._consumer, **fields}
        named["domain"] = self._events.domain or None
        subject = f"{prefix}.{self._stream}.{self._consumer}"
        self._events.publish(self._account, subject, event_type, named)
