"""Models of the bodies of API requests.

Source: nats-server's `JSApi…Request` structs in jetstream_api.go.
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
    """Request to create or update a stream; `pedantic` forbids silent adjustments."""

    pedantic: Omitempty[bool] = False

    @property
    def config(self) -> StreamConfig:
        """Configuration of the stream, without `pedantic`."""
        return StreamConfig.model_construct(
            **{name: getattr(self, name) for name in StreamConfig.model_fields}
        )


class ApiPagedRequest(Model):
    """Request for a page of a list; `offset` is the index of its first item."""

    offset: Int = 0


class StreamInfoRequest(ApiPagedRequest):
    """Request for a stream's info; `subjects_filter`: count the messages of matching subjects."""

    go_name = "JSApiStreamInfoRequest"
    deleted_details: Omitempty[bool] = False
    subjects_filter: Omitempty[str] = ""


class StreamNamesRequest(ApiPagedRequest):
    """Request for stream names; `subject`: only streams whose subjects overlap it."""

    go_name = "JSApiStreamNamesRequest"
    subject: Omitempty[str] = ""


class StreamListRequest(ApiPagedRequest):
    """Request for stream infos; `subject`: only streams whose subjects overlap it."""

    go_name = "JSApiStreamListRequest"
    subject: Omitempty[str] = ""


class StreamPurgeRequest(Model):
    """Request to remove messages that match `filter`: below `seq`, or all but the last `keep`."""

    go_name = "JSApiStreamPurgeRequest"
    seq: Omitempty[Uint64] = 0
    filter: Omitempty[str] = ""
    keep: Omitempty[Uint64] = 0


class StreamMsgDeleteRequest(Model):
    """Request to delete a message; `no_erase` leaves its bytes on disk."""

    go_name = "JSApiMsgDeleteRequest"
    seq: Uint64 = 0
    no_erase: Omitempty[bool] = False


class StreamMsgGetRequest(Model):
    """Request for messages that are named in exactly one way; direct gets may return several."""

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
    """Request for a snapshot: the subject of its chunks, and their sizes in bytes."""

    go_name = "JSApiStreamSnapshotRequest"
    deliver_subject: str = ""
    no_consumers: Omitempty[bool] = False
    chunk_size: Omitempty[Int] = 0
    window_size: Omitempty[Int] = 0
    jsck: Omitempty[bool] = False


class StreamRestoreRequest(Model):
    """Request for a restore: configuration and state of the stream of the snapshot."""

    go_name = "JSApiStreamRestoreRequest"
    config: StreamConfig = StreamConfig()
    state: StreamState = StreamState()


class StreamRemovePeerRequest(Model):
    """Request to remove a server, named by name or id, from a stream's peers."""

    go_name = "JSApiStreamRemovePeerRequest"
    peer: str = ""


class LeaderStepDownRequest(Model):
    """Request for another leader; `placement` selects it."""

    go_name = "JSApiLeaderStepdownRequest"
    placement: Omitempty[Placement | None] = None


class MetaServerRemoveRequest(Model):
    """Request to remove a server, named by name or id, from the cluster."""

    go_name = "JSApiMetaServerRemoveRequest"
    peer: str = ""
    peer_id: Omitempty[str] = ""


class StreamMoveRequest(Model):
    """Request to move a stream: from `server`, to servers with that placement."""

    go_name = "JSApiMetaServerStreamMoveRequest"
    server: Omitempty[str] = ""
    cluster: Omitempty[str] = ""
    domain: Omitempty[str] = ""
    tags: Omitempty[Items[str]] = Field(default_factory=list)


class CreateConsumerRequest(Model):
    """Request to create or update a consumer."""

    stream_name: str = ""
    config: ConsumerConfig = ConsumerConfig()
    action: ConsumerAction = ConsumerAction.CREATE_OR_UPDATE
    pedantic: Omitempty[bool] = False


class ConsumersRequest(ApiPagedRequest):
    """Request for names or infos of a stream's consumers."""

    go_name = "JSApiConsumersRequest"


class ConsumerPauseRequest(Model):
    """Request to pause a consumer; 0 or a time in the past resumes it."""

    go_name = "JSApiConsumerPauseRequest"
    pause_until: TimeNs = 0


class ConsumerUnpinRequest(Model):
    """Request to unpin the pinned client of a priority group."""

    go_name = "JSApiConsumerUnpinRequest"
    group: str = ""


class ConsumerResetRequest(Model):
    """Request to restart a consumer at a sequence; 0: behind the ack floor."""

    go_name = "JSApiConsumerResetRequest"
    seq: Omitempty[Uint64] = 0


class PriorityGroup(Model):
    """Priority group of a pull request, and the conditions under which it is served."""

    group: Omitempty[str] = ""
    min_pending: Omitempty[Int64] = 0
    min_ack_pending: Omitempty[Int64] = 0
    id: Omitempty[str] = ""
    priority: Omitempty[Int] = 0


class ConsumerGetNextRequest(PriorityGroup):
    """Pull request; durations are nanoseconds."""

    go_name = "JSApiConsumerGetNextRequest"
    expires: Omitempty[DurationNs] = 0
    batch: Omitempty[Int] = 0
    max_bytes: Omitempty[Int] = 0
    no_wait: Omitempty[bool] = False
    idle_heartbeat: Omitempty[DurationNs] = 0
