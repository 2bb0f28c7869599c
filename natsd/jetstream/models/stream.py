"""The configuration of a stream and what is told about it.

Fields, their order and their zero values are those of nats-server's structs; what a configuration
must keep to, and its defaults, is said in `stream/config.py`.

Source: reference §6.4, §6.6.
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
    """When messages are removed."""

    LIMITS = "limits"
    INTEREST = "interest"
    WORKQUEUE = "workqueue"


class DiscardPolicy(GoEnum):
    """What gives way at a limit."""

    OLD = "old"
    NEW = "new"

    @classmethod
    def _missing_(cls, value: object) -> "DiscardPolicy | None":
        """Any case will do."""
        folded = value.lower() if isinstance(value, str) else ""
        return next((policy for policy in cls if policy.value == folded), None)


class Storage(GoEnum):
    """Where messages are kept."""

    FILE = "file"
    MEMORY = "memory"


class Compression(GoEnum):
    """How blocks that are full are kept."""

    NONE = "none"
    S2 = "s2"

    @classmethod
    def reads(cls, value: object) -> bool:
        """Texts only, and nothing: else the field's type is wrong."""
        return value is None or isinstance(value, str)

    @classmethod
    def refusal(cls, raw: str) -> str:
        """The same text whatever it was."""
        return "unknown compression algorithm"


class PersistMode(GoEnum):
    """Whether an acknowledgement waits for the disk."""

    DEFAULT = "default"
    ASYNC = "async"

    @classmethod
    def _missing_(cls, value: object) -> "PersistMode | None":
        return cls.DEFAULT if value == "" else None


class Placement(Model):
    """Which servers may keep a stream."""

    cluster: Omitempty[str] = ""
    tags: Omitempty[Items[str]] = Field(default_factory=list)
    preferred: Omitempty[str] = ""


class SubjectTransformConfig(Model):
    """Subjects that match `src` become `dest`."""

    src: str = ""
    dest: str = ""


class ExternalStream(Model):
    """Another account's or domain's API."""

    api: str = ""
    deliver: str = ""


class StreamConsumerSource(Model):
    """The consumer that is sourced through."""

    name: Omitempty[str] = ""
    deliver_subject: Omitempty[str] = ""


class StreamSource(Model):
    """A stream that another is filled from."""

    go_is_pointer = True

    name: str = ""
    opt_start_seq: Omitempty[Uint64] = 0
    opt_start_time: Omitempty[OptionalTimeNs] = None
    filter_subject: Omitempty[str] = ""
    subject_transforms: Omitempty[Items[SubjectTransformConfig]] = Field(default_factory=list)
    external: Omitempty[ExternalStream | None] = None
    consumer: Omitempty[StreamConsumerSource | None] = None


class RePublish(Model):
    """Where stored messages are published again."""

    src: Omitempty[str] = ""
    dest: str = ""
    headers_only: Omitempty[bool] = False


class StreamConsumerLimits(Model):
    """Defaults and ceilings for the consumers of a stream; 0: none."""

    inactive_threshold: Omitempty[DurationNs] = 0
    max_ack_pending: Omitempty[Int] = 0


class StreamConfig(Model):
    """All settings of a stream. Durations are nanoseconds; -1 (before the rules: 0) is no limit."""

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
    """Messages that damage took."""

    msgs: Items[Uint64] = Field(default_factory=list)
    bytes: Uint64 = 0


class StreamState(Model):
    """What a stream holds."""

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
    """A server that keeps a replica."""

    name: str
    current: bool
    offline: Omitempty[bool] = False
    active: DurationNs = 0
    lag: Omitempty[Uint64] = 0
    peer: str = ""


class ClusterInfo(Model):
    """The servers that keep a stream or consumer."""

    name: Omitempty[str] = ""
    raft_group: Omitempty[str] = ""
    leader: Omitempty[str] = ""
    leader_since: Omitempty[TimeNs] = 0
    system_account: Omitempty[bool] = False
    traffic_account: Omitempty[str] = ""
    replicas: Omitempty[Items[PeerInfo]] = Field(default_factory=list)


class StreamSourceInfo(Model):
    """How far a mirror or source has come."""

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
    """A stream: settings and state."""

    config: StreamConfig
    created: TimeNs
    state: StreamState
    domain: Omitempty[str] = ""
    cluster: Omitempty[ClusterInfo | None] = None
    mirror: Omitempty[StreamSourceInfo | None] = None
    sources: Omitempty[Items[StreamSourceInfo]] = Field(default_factory=list)
    alternates: Omitempty[Items[StreamAlternate]] = Field(default_factory=list)
    ts: TimeNs = 0


class StoredMessage(Model):
    """A message as `STREAM.MSG.GET` answers it; `hdrs` is the whole header block."""

    subject: str
    seq: Uint64
    hdrs: Omitempty[Base64] = b""
    data: Omitempty[Base64] = b""
    time: TimeNs
