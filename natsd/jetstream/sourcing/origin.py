"""The origin of a mirror or source, and the requests for its messages.

    $JS.API.CONSUMER.CREATE.<stream>[.<consumer>.<filter>]   creates the link's own consumer
    $JS.API.CONSUMER.RESET.<stream>.<consumer>               resets an existing one to its ack floor
    $JS.M.<random>, $JS.S.<random>                           receive the messages

With `external`, its `api` replaces `$JS.API`, and its `deliver` stands before the delivery subject.

Promise
- Nothing here has state, waits or uses a stream: this module only builds texts and models.
- A source is identified by its index name, which is unique within a stream; the parts of that name
  are in the header `Nats-Stream-Source` of its messages.

Source: nats-server's `StreamSource` and `trySetupSourceConsumer`.
"""

from dataclasses import dataclass
from typing import Final

from natsd.jetstream.models.base import Model, Uint64
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig, DeliverPolicy
from natsd.jetstream.models.requests import CreateConsumerRequest
from natsd.jetstream.models.response import Response
from natsd.jetstream.models.stream import StreamSource, SubjectTransformConfig
from natsd.jetstream.names import API_PREFIX
from natsd.jetstream.short_hash import short_hash
from natsd.jetstream.stream.settings import Mapping

HEARTBEAT_NS: Final = 1_000_000_000
INACTIVE_NS: Final = 10_000_000_000
ACK_WAIT_NS: Final = 22 * 3600 * 1_000_000_000
EVERYTHING: Final = ">"
_BETWEEN: Final = "\f"
"""Separates the filters, and the destinations, of several transforms."""


@dataclass(frozen=True, slots=True)
class FilledStream:
    """The stream that is filled."""

    stream: str
    account: str
    domain: str = ""

    @property
    def seed(self) -> str:
        """Text from which consumer names are derived: the same after every start."""
        return " ".join(part for part in (self.stream, self.account, self.domain) if part)


@dataclass(frozen=True, slots=True)
class OriginStart:
    """Start position: a sequence, or a time (ns); both 0: the first message."""

    sequence: int = 0
    time_ns: int = 0

    @property
    def policy(self) -> DeliverPolicy:
        """Deliver policy of the consumer that starts there."""
        if self.time_ns:
            return DeliverPolicy.BY_START_TIME
        return DeliverPolicy.BY_START_SEQUENCE if self.sequence else DeliverPolicy.ALL


class OriginConsumerConfig(Model):
    """The relevant members of a consumer's configuration; its server may be of another version."""

    deliver_subject: str = ""
    ack_policy: str = ""


class OriginPosition(Model):
    """Position of a consumer: its own sequence and that of its stream."""

    consumer_seq: Uint64 = 0
    stream_seq: Uint64 = 0


class OriginConsumer(Response):
    """Answer to the creation or the reset of a consumer."""

    name: str = ""
    config: OriginConsumerConfig | None = None
    delivered: OriginPosition = OriginPosition()
    num_pending: int = 0


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of a mirror, or of one of several sources.

    `is_shared` says that another source of the stream has the same origin stream.
    """

    source: StreamSource
    target: FilledStream
    is_mirror: bool
    is_shared: bool = False

    @property
    def name(self) -> str:
        """Name of the origin's stream."""
        return self.source.name

    @property
    def is_durable(self) -> bool:
        """Whether an existing durable consumer is used."""
        return self.source.consumer is not None

    @property
    def filters(self) -> list[str]:
        """Filters on the origin's subjects; empty: everything."""
        if self.source.subject_transforms:
            return [each.src for each in self.source.subject_transforms]
        return [self.source.filter_subject] if self.source.filter_subject else []

    @property
    def mappings(self) -> list[Mapping]:
        """Transforms of the origin's subjects."""
        transforms = self.source.subject_transforms
        return [Mapping(each.src, each.dest) for each in transforms if each.dest]

    @property
    def header(self) -> tuple[bytes, bytes] | None:
        """Text before and after the sequence in `Nats-Stream-Source`; None for a mirror."""
        if self.is_mirror:
            return None
        name, filters, destinations = index_name(self.source).split(" ")
        return f"{name} ".encode(), f" {filters} {destinations} ".encode()

    # Requests

    @property
    def stable_name(self) -> str:
        """Name of the consumer, the same after every start.

        The origin's server appends a random suffix, unless it keeps the consumer as a durable
        (streams with interest or work-queue retention).
        """
        seed = self.target.seed
        if self.is_shared:
            seed = f"{short_hash(seed.encode())} {index_name(self.source)}"
            return f"JS_SRC_{short_hash(seed.encode())}"
        digest = short_hash(seed.encode())
        if self.is_mirror:
            return f"JS_MIRROR_{digest}"
        return f"JS_SRC_{short_hash(digest.encode())}"

    def delivery_subject(self, suffix: str) -> str:
        """Return the subject for the delivery of messages."""
        kind = "M" if self.is_mirror else "S"
        if self.source.consumer is not None:
            return self.source.consumer.deliver_subject
        if self.source.external is not None and self.source.external.deliver:
            return f"{self.source.external.deliver}.{kind}.{suffix}".replace("..", ".")
        return f"$JS.{kind}.{suffix}"

    def request(self, start: OriginStart, deliver: str, *, name: str = "") -> CreateConsumerRequest:
        """Return the request that creates a consumer.

        `name` is given only if the origin's server is too old to know `sourcing`.
        """
        kind = "mirror" if self.is_mirror else "src"
        target, filters = self.target, self.filters
        metadata = {
            f"_nats.{kind}.stream": target.stream,
            f"_nats.{kind}.acc": target.account,
        }
        if target.domain:
            metadata[f"_nats.{kind}.domain"] = target.domain
        config = ConsumerConfig(
            name=name or self.stable_name,
            deliver_subject=deliver,
            deliver_policy=start.policy,
            opt_start_seq=start.sequence,
            opt_start_time=start.time_ns or None,
            ack_policy=AckPolicy.NONE,
            ack_wait=ACK_WAIT_NS,
            max_deliver=1,
            filter_subject=filters[0] if len(filters) == 1 else "",
            filter_subjects=filters if len(filters) > 1 else [],
            flow_control=True,
            idle_heartbeat=HEARTBEAT_NS,
            inactive_threshold=INACTIVE_NS,
            direct=True,
            sourcing=not name,
            metadata=metadata,
        )
        return CreateConsumerRequest(stream_name=self.name, config=config)

    def create_subject(self, request: CreateConsumerRequest) -> str:
        """Return the subject of `request`."""
        config = request.config
        subject = f"CONSUMER.CREATE.{self.name}"
        if config.filter_subject:
            subject = f"{subject}.{config.name}.{config.filter_subject}"
        return self._api(subject)

    @property
    def reset_subject(self) -> str:
        """Subject that resets the existing consumer to its ack floor."""
        assert self.source.consumer is not None
        return self._api(f"CONSUMER.RESET.{self.name}.{self.source.consumer.name}")

    def delete_subject(self, consumer: str) -> str:
        """Return the subject that deletes the link's own consumer."""
        return self._api(f"CONSUMER.DELETE.{self.name}.{consumer}")

    def _api(self, subject: str) -> str:
        external = self.source.external
        prefix = external.api if external is not None else API_PREFIX
        return f"{prefix}.{subject}".replace("..", ".") if external else f"{prefix}.{subject}"


def index_name(source: StreamSource) -> str:
    """Return stream, filters and destinations, separated by spaces: `ORDERS > >`.

    With an external API, a hash of its prefix is added to the stream; with an existing consumer, a
    hash of the consumer's name.
    """
    name = source.name
    if source.external is not None:
        name = f"{name}:{short_hash(source.external.api.encode())}"
    if source.consumer is not None:
        name = f"{name}:C={short_hash(source.consumer.name.encode())}"
    transforms = source.subject_transforms or [SubjectTransformConfig(src=source.filter_subject)]
    filters = _BETWEEN.join(each.src or EVERYTHING for each in transforms)
    destinations = _BETWEEN.join(each.dest or EVERYTHING for each in transforms)
    return f"{name} {filters} {destinations}"
