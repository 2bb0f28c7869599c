"""The events of a consumer about single messages: advisories, and the ack metric.

An event is published in the account, and built only if there is a subscriber.

Source: the schemas io.nats.jetstream.advisory.v1.{max_deliver,nak,terminated} and
io.nats.jetstream.metric.v1.consumer_ack.
"""

from typing import TYPE_CHECKING, Final

from natsd.jetstream import advisories
from natsd.jetstream.names import METRIC_PREFIX

if TYPE_CHECKING:
    from natsd.jetstream.account_resources import AccountResources

ACK_METRIC_TYPE: Final = "io.nats.jetstream.metric.v1.consumer_ack"


class ConsumerEvents:
    """The events of one consumer, for its engine (EngineEvents)."""

    def __init__(self, account: "AccountResources", stream: str, consumer: str) -> None:
        self._account = account
        self._stream = stream
        self._consumer = consumer

    def sampled(
        self, sequence: int, consumer_sequence: int, deliveries: int, ack_time_ns: int
    ) -> None:
        """Publish the ack metric."""
        fields = {
            "stream": self._stream,
            "consumer": self._consumer,
            "consumer_seq": consumer_sequence,
            "stream_seq": sequence,
            "ack_time": max(ack_time_ns, 1),
            "deliveries": deliveries,
        }
        subject = f"{METRIC_PREFIX}.CONSUMER.ACK.{self._stream}.{self._consumer}"
        advisories.publish_event(self._account, subject, ACK_METRIC_TYPE, fields)

    def max_deliveries(self, sequence: int, deliveries: int) -> None:
        """Publish the advisory that a message was delivered as often as allowed."""
        self._advise("MAX_DELIVERIES", "max_deliver", stream_seq=sequence, deliveries=deliveries)

    def nacked(self, sequence: int, consumer_sequence: int, deliveries: int) -> None:
        """Publish the advisory that a client refused a message."""
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
        """Publish the advisory that a message is never delivered again."""
        self._advise(
            "MSG_TERMINATED",
            "terminated",
            consumer_seq=consumer_sequence,
            stream_seq=sequence,
            deliveries=deliveries,
            reason=reason or None,
        )

    def pinned(self, group: str, pin_id: str) -> None:
        """Publish the advisory that a client was pinned."""
        advisories.group_pinned(self._account, self._stream, self._consumer, group, pin_id)

    def unpinned(self, group: str, reason: str) -> None:
        """Publish the advisory that a client was unpinned."""
        advisories.group_unpinned(self._account, self._stream, self._consumer, group, reason)

    def _advise(self, event: str, kind: str, **fields: object) -> None:
        advisories.of_consumer(self._account, event, self._stream, self._consumer, kind, fields)
