"""Models of API answers: the envelope with the requested data.

An error uses the same model with default values only. (Empty lists are therefore part of it, as
nats-server writes them; read to the letter, the published schemas take such an answer for a list
and an error at once.)

Source: nats-server's `JSApi…Response` structs; the types' names are the schemas
`io.nats.jetstream.api.v1.*_response`.
"""

from typing import Final

from pydantic import Field

from natsd.jetstream.models.account import AccountInfo
from natsd.jetstream.models.base import DurationNs, Embedded, Model, Omitempty, TimeNs, Uint64
from natsd.jetstream.models.consumer import ConsumerInfo
from natsd.jetstream.models.response import Paged, Response
from natsd.jetstream.models.stream import ReturnedMessage, StreamConfig, StreamInfo, StreamState

TYPE_PREFIX: Final = "io.nats.jetstream.api.v1."


class SystemResponse(Response):
    """Answer to a subject that is no request."""

    type: str = TYPE_PREFIX + "system_response"


class AccountInfoResponse(Response):
    """Answer to `INFO`."""

    type: str = TYPE_PREFIX + "account_info_response"
    info: Embedded[AccountInfo | None] = None


class StreamCreateResponse(Response):
    """Answer to `STREAM.CREATE`; `did_create`: the stream is new."""

    type: str = TYPE_PREFIX + "stream_create_response"
    info: Embedded[StreamInfo | None] = None
    did_create: Omitempty[bool] = False


class StreamUpdateResponse(Response):
    """Answer to `STREAM.UPDATE`."""

    type: str = TYPE_PREFIX + "stream_update_response"
    info: Embedded[StreamInfo | None] = None


class StreamInfoResponse(Response):
    """Answer to `STREAM.INFO`; the page is that of the message counts per subject."""

    type: str = TYPE_PREFIX + "stream_info_response"
    page: Embedded[Paged] = Paged()
    info: Embedded[StreamInfo | None] = None


class StreamNamesResponse(Response):
    """Answer to `STREAM.NAMES`; without names the list is None, not empty, as on nats-server."""

    type: str = TYPE_PREFIX + "stream_names_response"
    page: Embedded[Paged] = Paged()
    streams: list[str] | None = None


class StreamListResponse(Response):
    """Answer to `STREAM.LIST`; `offline` maps streams that cannot be served to the reason."""

    type: str = TYPE_PREFIX + "stream_list_response"
    page: Embedded[Paged] = Paged()
    streams: list[StreamInfo] = Field(default_factory=list)
    missing: Omitempty[list[str]] = Field(default_factory=list)
    offline: Omitempty[dict[str, str]] = Field(default_factory=dict)


class SuccessResponse(Response):
    """Answer that only confirms success."""

    success: Omitempty[bool] = False


class StreamDeleteResponse(SuccessResponse):
    """Answer to `STREAM.DELETE`."""

    type: str = TYPE_PREFIX + "stream_delete_response"


class StreamPurgeResponse(SuccessResponse):
    """Answer to `STREAM.PURGE`; `purged` is the number of removed messages."""

    type: str = TYPE_PREFIX + "stream_purge_response"
    purged: Uint64 = 0


class StreamMsgGetResponse(Response):
    """Answer to `STREAM.MSG.GET`."""

    type: str = TYPE_PREFIX + "stream_msg_get_response"
    message: Omitempty[ReturnedMessage | None] = None


class StreamMsgDeleteResponse(SuccessResponse):
    """Answer to `STREAM.MSG.DELETE`."""

    type: str = TYPE_PREFIX + "stream_msg_delete_response"


class StreamSnapshotResponse(Response):
    """Answer to `STREAM.SNAPSHOT`; the chunks follow."""

    type: str = TYPE_PREFIX + "stream_snapshot_response"
    config: Omitempty[StreamConfig | None] = None
    state: Omitempty[StreamState | None] = None


class StreamRestoreResponse(Response):
    """Answer to `STREAM.RESTORE`; the chunks are expected on `deliver_subject`."""

    type: str = TYPE_PREFIX + "stream_restore_response"
    deliver_subject: str = ""


class StreamRemovePeerResponse(SuccessResponse):
    """Answer to `STREAM.PEER.REMOVE`."""

    type: str = TYPE_PREFIX + "stream_remove_peer_response"


class StreamLeaderStepDownResponse(SuccessResponse):
    """Answer to `STREAM.LEADER.STEPDOWN`."""

    type: str = TYPE_PREFIX + "stream_leader_stepdown_response"


class LeaderStepDownResponse(SuccessResponse):
    """Answer to `META.LEADER.STEPDOWN`."""

    type: str = TYPE_PREFIX + "meta_leader_stepdown_response"


class MetaServerRemoveResponse(SuccessResponse):
    """Answer to `SERVER.REMOVE`."""

    type: str = TYPE_PREFIX + "meta_server_remove_response"


class ConsumerCreateResponse(Response):
    """Answer to `CONSUMER.CREATE` in all its forms."""

    type: str = TYPE_PREFIX + "consumer_create_response"
    info: Embedded[ConsumerInfo | None] = None


class ConsumerInfoResponse(Response):
    """Answer to `CONSUMER.INFO`."""

    type: str = TYPE_PREFIX + "consumer_info_response"
    info: Embedded[ConsumerInfo | None] = None


class ConsumerResetResponse(Response):
    """Answer to `CONSUMER.RESET`."""

    type: str = TYPE_PREFIX + "consumer_reset_response"
    info: Embedded[ConsumerInfo | None] = None
    reset_seq: Uint64 = 0


class ConsumerDeleteResponse(SuccessResponse):
    """Answer to `CONSUMER.DELETE`."""

    type: str = TYPE_PREFIX + "consumer_delete_response"


class ConsumerPauseResponse(Response):
    """Answer to `CONSUMER.PAUSE`."""

    type: str = TYPE_PREFIX + "consumer_pause_response"
    paused: bool = False
    pause_until: TimeNs = 0
    pause_remaining: Omitempty[DurationNs] = 0


class ConsumerUnpinResponse(Response):
    """Answer to `CONSUMER.UNPIN`."""

    type: str = TYPE_PREFIX + "consumer_unpin_response"


class ConsumerNamesResponse(Response):
    """Answer to `CONSUMER.NAMES`."""

    type: str = TYPE_PREFIX + "consumer_names_response"
    page: Embedded[Paged] = Paged()
    consumers: list[str] = Field(default_factory=list)


class AccountPurgeResponse(Response):
    """Answer to `ACCOUNT.PURGE`."""

    type: str = TYPE_PREFIX + "account_purge_response"
    initiated: Omitempty[bool] = False


class ConsumerListResponse(Response):
    """Answer to `CONSUMER.LIST`; `offline` maps consumers that cannot be served to the reason."""

    type: str = TYPE_PREFIX + "consumer_list_response"
    page: Embedded[Paged] = Paged()
    consumers: list[ConsumerInfo] = Field(default_factory=list)
    missing: Omitempty[list[str]] = Field(default_factory=list)
    offline: Omitempty[dict[str, str]] = Field(default_factory=dict)


class ConsumerLeaderStepDownResponse(SuccessResponse):
    """Answer to `CONSUMER.LEADER.STEPDOWN`."""

    type: str = TYPE_PREFIX + "consumer_leader_stepdown_response"


class PubAck(Model):
    """Answer to a publish."""

    stream: str
    seq: Uint64
    domain: Omitempty[str] = ""
    duplicate: Omitempty[bool] = False
    val: Omitempty[str] = ""
    batch: Omitempty[str] = ""
    count: Omitempty[Uint64] = 0
