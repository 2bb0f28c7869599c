"""Models of a consumer's configuration and state.

Fields, their order and their zero values are those of nats-server's `ConsumerConfig` and
`ConsumerInfo`; rules and defaults are in `consumer/config.py`.
"""

import msgspec
from pydantic import Field

from natsd.jetstream.models.base import (
    DurationNs,
    GoEnum,
    Int,
    Items,
    Model,
    Omitempty,
    OptionalTimeNs,
    TimeNs,
    Uint64,
    Written,
)


class DeliverPolicy(GoEnum):
    """Start position of a consumer."""

    ALL = "all"
    LAST = "last"
    NEW = "new"
    BY_START_SEQUENCE = "by_start_sequence"
    BY_START_TIME = "by_start_time"
    LAST_PER_SUBJECT = "last_per_subject"

    @classmethod
    def _missing_(cls, value: object) -> "DeliverPolicy | None":
        return cls.ALL if value == "undefined" else None


class AckPolicy(GoEnum):
    """Which deliveries need an acknowledgement."""

    NONE = "none"
    ALL = "all"
    EXPLICIT = "explicit"
    FLOW_CONTROL = "flow_control"


class ReplayPolicy(GoEnum):
    """Speed at which stored messages are delivered."""

    INSTANT = "instant"
    ORIGINAL = "original"


class PriorityPolicy(GoEnum):
    """Order in which the clients of a consumer are served."""

    NONE = "none"
    OVERFLOW = "overflow"
    PINNED_CLIENT = "pinned_client"
    PRIORITIZED = "prioritized"

    @classmethod
    def refusal(cls, raw: str) -> str:
        """Return nats-server's text for this enumeration, which differs from the others."""
        return f"unknown priority policy: {raw}"


class ConsumerAction(GoEnum):
    """What a request to create a consumer may do."""

    CREATE_OR_UPDATE = ""
    CREATE = "create"
    UPDATE = "update"

    @classmethod
    def refusal(cls, raw: str) -> str:
        """Return nats-server's text for this enumeration, which differs from the others."""
        return f"unknown consumer action: {raw}"


class ConsumerConfig(Model):
    """All settings of a consumer; durations are nanoseconds."""

    durable_name: Omitempty[str] = ""
    name: Omitempty[str] = ""
    description: Omitempty[str] = ""
    deliver_policy: DeliverPolicy = DeliverPolicy.ALL
    opt_start_seq: Omitempty[Uint64] = 0
    opt_start_time: Omitempty[OptionalTimeNs] = None
    ack_policy: AckPolicy = AckPolicy.NONE
    ack_wait: Omitempty[DurationNs] = 0
    max_deliver: Omitempty[Int] = 0
    backoff: Omitempty[Items[DurationNs]] = Field(default_factory=list)
    filter_subject: Omitempty[str] = ""
    filter_subjects: Omitempty[Items[str]] = Field(default_factory=list)
    replay_policy: ReplayPolicy = ReplayPolicy.INSTANT
    rate_limit_bps: Omitempty[Uint64] = 0
    sample_freq: Omitempty[str] = ""
    max_waiting: Omitempty[Int] = 0
    max_ack_pending: Omitempty[Int] = 0
    flow_control: Omitempty[bool] = False
    headers_only: Omitempty[bool] = False
    max_batch: Omitempty[Int] = 0
    max_expires: Omitempty[DurationNs] = 0
    max_bytes: Omitempty[Int] = 0
    deliver_subject: Omitempty[str] = ""
    deliver_group: Omitempty[str] = ""
    idle_heartbeat: Omitempty[DurationNs] = 0
    inactive_threshold: Omitempty[DurationNs] = 0
    num_replicas: Int = 0
    mem_storage: Omitempty[bool] = False
    direct: Omitempty[bool] = False
    sourcing: Omitempty[bool] = False
    metadata: Omitempty[dict[str, str]] = Field(default_factory=dict)
    pause_until: Omitempty[TimeNs] = 0
    priority_groups: Omitempty[Items[str]] = Field(default_factory=list)
    priority_policy: Omitempty[PriorityPolicy] = PriorityPolicy.NONE
    priority_timeout: Omitempty[DurationNs] = 0


class SequenceInfo(Written, kw_only=True):
    """A position: the consumer's and the stream's sequence."""

    consumer_seq: int
    stream_seq: int
    last_active: str = ""


class PriorityGroupState(Written, kw_only=True):
    """The pinned client of a priority group."""

    group: str
    pinned_client_id: str = ""
    pinned_ts: str


class ConsumerInfo(Written, kw_only=True):
    """Configuration, as text, and state of a consumer; times are RFC 3339."""

    stream_name: str
    name: str
    created: str
    config: msgspec.Raw | None = None
    delivered: SequenceInfo
    ack_floor: SequenceInfo
    num_ack_pending: int
    num_redelivered: int
    num_waiting: int
    num_pending: int
    cluster: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    push_bound: bool = False
    paused: bool = False
    pause_remaining: int = 0
    ts: str
    priority_groups: tuple[PriorityGroupState, ...] = ()
    natsd_staleness: str = ""  # of a consumer on a read replica: how old the state may be
