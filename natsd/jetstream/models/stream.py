"""Models of a stream's configuration and state.

Fields, their order and their zero values are those of nats-server's `StreamConfig` and
`StreamInfo`; rules and defaults are in `stream/config.py`.
"""

from pydantic import Field

from natsd.jetstream.models.base import (
    Base64,
    DurationNs,
    GoEnum,
    Int,
    Int32,
    Int64,
    Items,
    Model,
    Omitempty,
    OptionalTimeNs,
    TimeNs,
    Uint64,
)
from natsd.jetstream.models.response import ErrorBody


class Retention(GoEnum):
    """Rule by which messages are removed."""

    LIMITS = "limits"
    INTEREST = "interest"
    WORKQUEUE = "workqueue"


class DiscardPolicy(GoEnum):
    """Messages that are given up at a limit: the oldest, or new ones."""

    OLD = "old"
    NEW = "new"

    @classmethod
    def _missing_(cls, value: object) -> "DiscardPolicy | None":
        """Accept the words in any case."""
        folded = value.lower() if isinstance(value, str) else ""
        return next((policy for policy in cls if policy.value == folded), None)


class Storage(GoEnum):
    """Kind of storage for messages."""

    FILE = "file"
    MEMORY = "memory"


class Compression(GoEnum):
    """Compression of full blocks."""

    NONE = "none"
    S2 = "s2"

    @classmethod
    def reads(cls, value: object) -> bool:
        """Report errors of texts and null only; other values have the wrong type for the field."""
        return value is None or isinstance(value, str)

    @classmethod
    def refusal(cls, raw: str) -> str:
        """Return nats-server's text, which does not contain the value."""
        return "unknown compression algorithm"


class PersistMode(GoEnum):
    """Whether an acknowledgement waits for the disk."""

    DEFAULT = "default"
    ASYNC = "async"

    @classmethod
    def _missing_(cls, value: object) -> "PersistMode | None":
        return cls.DEFAULT if value == "" else None


class Placement(Model):
    """Servers that may store a stream."""

    cluster: Omitempty[str] = ""
    tags: Omitempty[Items[str]] = Field(default_factory=list)
    preferred: Omitempty[str] = ""


class SubjectTransformConfig(Model):
    """Transform of subjects: those that match `src` become `dest`."""

    src: str = ""
    dest: str = ""


class ExternalStream(Model):
    """Subjects of another account's or domain's API."""

    api: str = ""
    deliver: str = ""


class StreamConsumerSource(Model):
    """Existing consumer that a mirror or source uses."""

    name: Omitempty[str] = ""
    deliver_subject: Omitempty[str] = ""


class StreamSource(Model):
    """A stream from which another stream gets its messages."""

    go_is_pointer = True

    name: str = ""
    opt_start_seq: Omitempty[Uint64] = 0
    opt_start_time: Omitempty[OptionalTimeNs] = None
    filter_subject: Omitempty[str] = ""
    subject_transforms: Omitempty[Items[SubjectTransformConfig]] = Field(default_factory=list)
    external: Omitempty[ExternalStream | None] = None
    consumer: Omitempty[StreamConsumerSource | None] = None


class RePublish(Model):
    """Republishing of stored messages (ADR-28)."""

    src: Omitempty[str] = ""
    dest: str = ""
    headers_only: Omitempty[bool] = False


class StreamConsumerLimits(Model):
    """Defaults and ceilings for the consumers of a stream; 0: none."""

    inactive_threshold: Omitempty[DurationNs] = 0
    max_ack_pending: Omitempty[Int] = 0


class StreamConfig(Model):
    """All settings of a stream.

    Durations are nanoseconds; -1 is no limit (0 too, before the rules are applied).
    """

    name: str = ""
    description: Omitempty[str] = ""
    subjects: Omitempty[Items[str]] = Field(default_factory=list)
    retention: Retention = Retention.LIMITS
    max_consumers: Int = 0
    max_msgs: Int64 = 0
    max_bytes: Int64 = 0
    max_age: DurationNs = 0
    max_msgs_per_subject: Int64 = 0
    max_msg_size: Omitempty[Int32] = 0
    discard: DiscardPolicy = DiscardPolicy.OLD
    storage: Storage = Storage.FILE
    num_replicas: Int = 0
    no_ack: Omitempty[bool] = False
    duplicate_window: Omitempty[DurationNs] = 0
    placement: Omitempty[Placement | None] = None
    mirror: Omitempty[StreamSource | None] = None
    sources: Omitempty[Items[StreamSource]] = Field(default_factory=list)
    compression: Compression = Compression.NONE
    first_seq: Omitempty[Uint64] = 0
    subject_transform: Omitempty[SubjectTransformConfig | None] = None
    republish: Omitempty[RePublish | None] = None
    allow_direct: bool = False
    mirror_direct: bool = False
    discard_new_per_subject: Omitempty[bool] = False
    sealed: bool = False
    deny_delete: bool = False
    deny_purge: bool = False
    allow_rollup_hdrs: bool = False
    consumer_limits: StreamConsumerLimits = StreamConsumerLimits()
    allow_msg_ttl: bool = False
    subject_delete_marker_ttl: Omitempty[DurationNs] = 0
    allow_msg_counter: Omitempty[bool] = False
    allow_atomic: Omitempty[bool] = False
    allow_msg_schedules: Omitempty[bool] = False
    persist_mode: Omitempty[PersistMode] = PersistMode.DEFAULT
    allow_batched: Omitempty[bool] = False
    metadata: Omitempty[dict[str, str]] = Field(default_factory=dict)


class LostStreamData(Model):
    """Messages that were lost through damage."""

    msgs: Items[Uint64] = Field(default_factory=list)
    bytes: Uint64 = 0


class StreamState(Model):
    """State of a stream's messages."""

    messages: Uint64 = 0
    bytes: Uint64 = 0
    first_seq: Uint64 = 0
    first_ts: TimeNs = 0
    last_seq: Uint64 = 0
    last_ts: TimeNs = 0
    num_subjects: Omitempty[Int] = 0
    subjects: Omitempty[dict[str, Uint64]] = Field(default_factory=dict)
    num_deleted: Omitempty[Int] = 0
    deleted: Omitempty[Items[Uint64]] = Field(default_factory=list)
    lost: Omitempty[LostStreamData | None] = None
    consumer_count: Int = 0


class PeerInfo(Model):
    """A server that stores a replica."""

    name: str
    current: bool
    offline: Omitempty[bool] = False
    active: DurationNs = 0
    lag: Omitempty[Uint64] = 0
    peer: str = ""
    read_replica: Omitempty[bool] = False  # of natsd only: it answers direct gets, without a vote


class ClusterInfo(Model):
    """The servers that store a stream or consumer."""

    name: Omitempty[str] = ""
    raft_group: Omitempty[str] = ""
    leader: Omitempty[str] = ""
    leader_since: Omitempty[TimeNs] = 0
    system_account: Omitempty[bool] = False
    traffic_account: Omitempty[str] = ""
    replicas: Omitempty[Items[PeerInfo]] = Field(default_factory=list)


class StreamSourceInfo(Model):
    """Progress of a mirror or source; `active` is ns since the last message, -1: never."""

    name: str
    external: Omitempty[ExternalStream | None] = None
    lag: Uint64 = 0
    active: DurationNs = -1
    error: Omitempty[ErrorBody | None] = None
    filter_subject: Omitempty[str] = ""
    subject_transforms: Omitempty[Items[SubjectTransformConfig]] = Field(default_factory=list)


class StreamAlternate(Model):
    """Another stream with the same messages."""

    name: str
    domain: Omitempty[str] = ""
    cluster: str = ""


class StreamInfo(Model):
    """Configuration and state of a stream."""

    config: StreamConfig
    created: TimeNs
    state: StreamState
    domain: Omitempty[str] = ""
    cluster: Omitempty[ClusterInfo | None] = None
    mirror: Omitempty[StreamSourceInfo | None] = None
    sources: Omitempty[Items[StreamSourceInfo]] = Field(default_factory=list)
    alternates: Omitempty[Items[StreamAlternate]] = Field(default_factory=list)
    ts: TimeNs = 0


class ReturnedMessage(Model):
    """A message as `STREAM.MSG.GET` answers it; `hdrs` is the whole header block."""

    subject: str
    seq: Uint64
    hdrs: Omitempty[Base64] = b""
    data: Omitempty[Base64] = b""
    time: TimeNs
