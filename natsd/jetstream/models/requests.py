"""Bodies of requests.

Source: reference §6.2, §6.10, §6.11, §6.14.
"""

from pydantic import Field

from natsd.jetstream.models.base import (
    DurationNs,
    Int,
    Int64,
    Items,
    Model,
    Omitempty,
    OptionalTimeNs,
    TimeNs,
    Uint64,
)
from natsd.jetstream.models.consumer import ConsumerAction, ConsumerConfig
from natsd.jetstream.models.stream import Placement, StreamConfig, StreamState


class StreamConfigRequest(StreamConfig):
    """Creates or updates a stream; `pedantic`: nothing is adjusted silently."""

    pedantic: Omitempty[bool] = False

    @property
    def config(self) -> StreamConfig:
        return StreamConfig.model_construct(
            **{name: getattr(self, name) for name in StreamConfig.model_fields}
        )


class ApiPagedRequest(Model):
    """From which item on."""

    offset: Int = 0


class StreamInfoRequest(ApiPagedRequest):
    """`subjects_filter`: count the messages of each subject that matches."""

    go_name = "JSApiStreamInfoRequest"
    deleted_details: Omitempty[bool] = False
    subjects_filter: Omitempty[str] = ""


class StreamNamesRequest(ApiPagedRequest):
    """`subject`: only streams whose subjects meet it."""

    go_name = "JSApiStreamNamesRequest"
    subject: Omitempty[str] = ""


class StreamListRequest(ApiPagedRequest):
    """`subject`: only streams whose subjects meet it."""

    go_name = "JSApiStreamListRequest"
    subject: Omitempty[str] = ""


class StreamPurgeRequest(Model):
    """Up to but without `seq`; or all but the last `keep`; both of what matches `filter`."""

    go_name = "JSApiStreamPurgeRequest"
    seq: Omitempty[Uint64] = 0
    filter: Omitempty[str] = ""
    keep: Omitempty[Uint64] = 0


class StreamMsgDeleteRequest(Model):
    """`no_erase`: leave the bytes on disk."""

    go_name = "JSApiMsgDeleteRequest"
    seq: Uint64 = 0
    no_erase: Omitempty[bool] = False


class StreamMsgGetRequest(Model):
    """Exactly one way of naming messages; for direct gets several messages at once."""

    go_name = "JSApiMsgGetRequest"
    seq: Omitempty[Uint64] = 0
    last_by_subj: Omitempty[str] = ""
    next_by_subj: Omitempty[str] = ""
    batch: Omitempty[Int] = 0
    max_bytes: Omitempty[Int] = 0
    start_time: Omitempty[OptionalTimeNs] = None
    multi_last: Omitempty[Items[str]] = Field(default_factory=list)
    up_to_seq: Omitempty[Uint64] = 0
    up_to_time: Omitempty[OptionalTimeNs] = None
    no_hdr: Omitempty[bool] = False


class StreamSnapshotRequest(Model):
    """Where the chunks go, and how large they are."""

    go_name = "JSApiStreamSnapshotRequest"
    deliver_subject: str = ""
    no_consumers: Omitempty[bool] = False
    chunk_size: Omitempty[Int] = 0
    window_size: Omitempty[Int] = 0
    jsck: Omitempty[bool] = False


class StreamRestoreRequest(Model):
    """The stream as it was."""

    go_name = "JSApiStreamRestoreRequest"
    config: StreamConfig = StreamConfig()
    state: StreamState = StreamState()


class StreamRemovePeerRequest(Model):
    """A server's name or id."""

    go_name = "JSApiStreamRemovePeerRequest"
    peer: str = ""


class LeaderStepDownRequest(Model):
    """Who should lead instead."""

    go_name = "JSApiLeaderStepdownRequest"
    placement: Omitempty[Placement | None] = None


class MetaServerRemoveRequest(Model):
    """A server's name, or its id."""

    go_name = "JSApiMetaServerRemoveRequest"
    peer: str = ""
    peer_id: Omitempty[str] = ""


class StreamMoveRequest(Model):
    """From which server, and where to."""

    go_name = "JSApiMetaServerStreamMoveRequest"
    server: Omitempty[str] = ""
    cluster: Omitempty[str] = ""
    domain: Omitempty[str] = ""
    tags: Omitempty[Items[str]] = Field(default_factory=list)


class CreateConsumerRequest(Model):
    """Creates or updates a consumer."""

    stream_name: str = ""
    config: ConsumerConfig = ConsumerConfig()
    action: ConsumerAction = ConsumerAction.CREATE_OR_UPDATE
    pedantic: Omitempty[bool] = False


class ConsumersRequest(ApiPagedRequest):
    """Names or infos of a stream's consumers."""

    go_name = "JSApiConsumersRequest"


class ConsumerPauseRequest(Model):
    """Until when; 0 or a time that is over resumes."""

    go_name = "JSApiConsumerPauseRequest"
    pause_until: TimeNs = 0


class ConsumerUnpinRequest(Model):
    """The group whose client is let go."""

    go_name = "JSApiConsumerUnpinRequest"
    group: str = ""


class ConsumerResetRequest(Model):
    """The sequence to start from; 0: behind the ack floor."""

    go_name = "JSApiConsumerResetRequest"
    seq: Omitempty[Uint64] = 0


class PriorityGroup(Model):
    """In which group a client asks, and when it wants to be served."""

    group: Omitempty[str] = ""
    min_pending: Omitempty[Int64] = 0
    min_ack_pending: Omitempty[Int64] = 0
    id: Omitempty[str] = ""
    priority: Omitempty[Int] = 0


class ConsumerGetNextRequest(PriorityGroup):
    """A pull request; durations are nanoseconds."""

    go_name = "JSApiConsumerGetNextRequest"
    expires: Omitempty[DurationNs] = 0
    batch: Omitempty[Int] = 0
    max_bytes: Omitempty[Int] = 0
    no_wait: Omitempty[bool] = False
    idle_heartbeat: Omitempty[DurationNs] = 0
