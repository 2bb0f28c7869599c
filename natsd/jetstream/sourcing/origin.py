"""Where a mirror or source gets its messages from, and how it asks for them.

    $JS.API.CONSUMER.CREATE.<stream>[.<consumer>.<filter>]   a consumer of its own
    $JS.API.CONSUMER.RESET.<stream>.<consumer>               one that is there: from its ack floor
    $JS.M.<random>, $JS.S.<random>                           where messages are delivered

`external` puts its `api` in place of `$JS.API`, and its `deliver` before the delivery subject.

Promise
- Nothing here has a state, waits or knows a stream: texts and models only.
- A source is known by its index name: two of a stream differ in it, and the header of what it
  brought, `Nats-Stream-Source`, has its parts.

Source: reference §6.12; nats-server's StreamSource and setupSourceConsumer.
"""

from dataclasses import dataclass
from typing import Final

from natsd.jetstream.consumer.consumer import short_hash
from natsd.jetstream.models.base import Model
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig, DeliverPolicy, SequenceInfo
from natsd.jetstream.models.requests import CreateConsumerRequest
from natsd.jetstream.models.response import Response
from natsd.jetstream.models.stream import StreamSource, SubjectTransformConfig
from natsd.jetstream.names import API_PREFIX
from natsd.jetstream.stream.settings import Mapping

HEARTBEAT_NS: Final = 1_000_000_000
INACTIVE_NS: Final = 10_000_000_000
ACK_WAIT_NS: Final = 22 * 3600 * 1_000_000_000
EVERYTHING: Final = ">"
_BETWEEN: Final = "\f"
"""Between the filters, and the destinations, of several transforms."""


@dataclass(frozen=True, slots=True)
class Target:
    """The stream that is filled."""

    stream: str
    account: str
    domain: str = ""

    @property
    def seed(self) -> str:
        """What its consumers are named by: the same after every start."""
        return " ".join(part for part in (self.stream, self.account, self.domain) if part)


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin: at a sequence, or at a time (ns), or, both 0, with the first message."""

    sequence: int = 0
    time_ns: int = 0

    @property
    def policy(self) -> DeliverPolicy:
        if self.time_ns:
            return DeliverPolicy.BY_START_TIME
        return DeliverPolicy.BY_START_SEQUENCE if self.sequence else DeliverPolicy.ALL


class OriginConsumerConfig(Model):
    """What matters of the configuration of a consumer elsewhere, perhaps of another version."""

    deliver_subject: str = ""
    ack_policy: str = ""


class OriginConsumer(Response):
    """The answer to either request."""

    name: str = ""
    config: OriginConsumerConfig | None = None
    delivered: SequenceInfo = SequenceInfo()
    num_pending: int = 0


@dataclass(frozen=True, slots=True)
class Origin:
    """A mirror's, or one of several sources'. `is_shared`: another source has the same stream."""

    source: StreamSource
    target: Target
    is_mirror: bool
    is_shared: bool = False

    @property
    def name(self) -> str:
        """The stream's."""
        return self.source.name

    @property
    def is_durable(self) -> bool:
        """It goes through a consumer that was made for it."""
        return self.source.consumer is not None

    @property
    def filters(self) -> list[str]:
        """What is wanted of the stream; none: everything."""
        if self.source.subject_transforms:
            return [each.src for each in self.source.subject_transforms]
        return [self.source.filter_subject] if self.source.filter_subject else []

    @property
    def mappings(self) -> list[Mapping]:
        """What subjects become."""
        transforms = self.source.subject_transforms
        return [Mapping(each.src, each.dest) for each in transforms if each.dest]

    @property
    def header(self) -> tuple[bytes, bytes] | None:
        """What stands before and behind the sequence in `Nats-Stream-Source`; a mirror has none."""
        if self.is_mirror:
            return None
        name, filters, destinations = index_name(self.source).split(" ")
        return f"{name} ".encode(), f" {filters} {destinations} ".encode()

    # What is asked

    @property
    def stable_name(self) -> str:
        """What the consumer is called; its server adds to it where it is not kept."""
        seed = self.target.seed
        if self.is_shared:
            seed = f"{short_hash(seed.encode())} {index_name(self.source)}"
            return f"JS_SRC_{short_hash(seed.encode())}"
        digest = short_hash(seed.encode())
        if self.is_mirror:
            return f"JS_MIRROR_{digest}"
        return f"JS_SRC_{short_hash(digest.encode())}"

    def delivery_subject(self, suffix: str) -> str:
        """Where messages are to be delivered."""
        kind = "M" if self.is_mirror else "S"
        if self.source.consumer is not None:
            return self.source.consumer.deliver_subject
        if self.source.external is not None and self.source.external.deliver:
            return f"{self.source.external.deliver}.{kind}.{suffix}".replace("..", ".")
        return f"$JS.{kind}.{suffix}"

    def request(self, start: Start, deliver: str, *, name: str = "") -> CreateConsumerRequest:
        """A consumer of its own. With a name it is one that a server makes that is too old to
        know of `sourcing`."""
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
        """Where `request` goes."""
        config = request.config
        subject = f"CONSUMER.CREATE.{self.name}"
        if config.filter_subject:
            subject = f"{subject}.{config.name}.{config.filter_subject}"
        return self._api(subject)

    @property
    def reset_subject(self) -> str:
        """Has the consumer that was made for it begin again at its ack floor."""
        assert self.source.consumer is not None
        return self._api(f"CONSUMER.RESET.{self.name}.{self.source.consumer.name}")

    def delete_subject(self, consumer: str) -> str:
        """Removes a consumer of its own."""
        return self._api(f"CONSUMER.DELETE.{self.name}.{consumer}")

    def _api(self, subject: str) -> str:
        external = self.source.external
        prefix = external.api if external is not None else API_PREFIX
        return f"{prefix}.{subject}".replace("..", ".") if external else f"{prefix}.{subject}"


def index_name(source: StreamSource) -> str:
    """Stream, filters and destinations, apart by spaces: `ORDERS > >`. A stream elsewhere has a
    hash of its API's prefix with it, one with its own consumer a hash of that one's name."""
    name = source.name
    if source.external is not None:
        name = f"{name}:{short_hash(source.external.api.encode())}"
    if source.consumer is not None:
        name = f"{name}:C={short_hash(source.consumer.name.encode())}"
    transforms = source.subject_transforms or [SubjectTransformConfig(src=source.filter_subject)]
    filters = _BETWEEN.join(each.src or EVERYTHING for each in transforms)
    destinations = _BETWEEN.join(each.dest or EVERYTHING for each in transforms)
    return f"{name} {filters} {destinations}"
