"""Answers: the envelope with what was asked for.

An answer that is an error is the same model with nothing but its defaults in it. (So the lists'
empty members stand there too, as nats-server writes them; the published schemas, read to the
letter, take such an answer for a list and an error at once.)

Source: reference §6.2; `io.nats.jetstream.api.v1.*_response` are the types' names.
"""

from typing import Final

from pydantic import Field

from natsd.jetstream.models.account import AccountInfo
from natsd.jetstream.models.base import DurationNs, Embedded, Model, Omitempty, TimeNs, Uint64
from natsd.jetstream.models.consumer import ConsumerInfo
from natsd.jetstream.models.response import Paged, Response
from natsd.jetstream.models.stream import StoredMessage, StreamConfig, StreamInfo, StreamState

TYPE_PREFIX: Final = "io.nats.jetstream.api.v1."


class SystemResponse(Response):
    """The answer to what is no request at all."""

    type: str = TYPE_PREFIX + "system_response"


class AccountInfoResponse(Response):
    """`INFO`."""

    type: str = TYPE_PREFIX + "account_info_response"
    info: Embedded[AccountInfo | None] = None


class StreamCreateResponse(Response):
    """`STREAM.CREATE`; `did_create`: it is new."""

    type: str = TYPE_PREFIX + "stream_create_response"
    info: Embedded[StreamInfo | None] = None
    did_create: Omitempty[bool] = False


class StreamUpdateResponse(Response):
    """`STREAM.UPDATE`."""

    type: str = TYPE_PREFIX + "stream_update_response"
    info: Embedded[StreamInfo | None] = None


class StreamInfoResponse(Response):
    """`STREAM.INFO`; the page is that of the subjects' counts."""

    type: str = TYPE_PREFIX + "stream_info_response"
    page: Embedded[Paged] = Paged()
    info: Embedded[StreamInfo | None] = None


class StreamNamesResponse(Response):
    """`STREAM.NAMES`; None, not an empty list, where there are none: as nats-server has it."""

    type: str = TYPE_PREFIX + "stream_names_response"
    page: Embedded[Paged] = Paged()
    streams: list[str] | None = None


class StreamListResponse(Response):
    """`STREAM.LIST`; `offline`: names of streams that can not be served, with the reason."""

    type: str = TYPE_PREFIX + "stream_list_response"
    page: Embedded[Paged] = Paged()
    streams: list[StreamInfo] = Field(default_factory=list)
    missing: Omitempty[list[str]] = Field(default_factory=list)
    offline: Omitempty[dict[str, str]] = Field(default_factory=dict)


class SuccessResponse(Response):
    """An answer that says no more than that it was done."""

    success: Omitempty[bool] = False


class StreamDeleteResponse(SuccessResponse):
    """`STREAM.DELETE`."""

    type: str = TYPE_PREFIX + "stream_delete_response"


class StreamPurgeResponse(SuccessResponse):
    """`STREAM.PURGE`; `purged` messages are gone."""

    type: str = TYPE_PREFIX + "stream_purge_response"
    purged: Uint64 = 0


class StreamMsgGetResponse(Response):
    """`STREAM.MSG.GET`."""

    type: str = TYPE_PREFIX + "stream_msg_get_response"
    message: Omitempty[StoredMessage | None] = None


class StreamMsgDeleteResponse(SuccessResponse):
    """`STREAM.MSG.DELETE`."""

    type: str = TYPE_PREFIX + "stream_msg_delete_response"


class StreamSnapshotResponse(Response):
    """`STREAM.SNAPSHOT`; the chunks follow."""

    type: str = TYPE_PREFIX + "stream_snapshot_response"
    config: Omitempty[StreamConfig | None] = None
    state: Omitempty[StreamState | None] = None


class StreamRestoreResponse(Response):
    """`STREAM.RESTORE`; the chunks are expected at `deliver_subject`."""

    type: str = TYPE_PREFIX + "stream_restore_response"
    deliver_subject: str = ""


class StreamRemovePeerResponse(SuccessResponse):
    """`STREAM.PEER.REMOVE`."""

    type: str = TYPE_PREFIX + "stream_remove_peer_response"


class StreamLeaderStepDownResponse(SuccessResponse):
    """`STREAM.LEADER.STEPDOWN`."""

    type: str = TYPE_PREFIX + "stream_leader_stepdown_response"


class ConsumerCreateResponse(Response):
    """`CONSUMER.CREATE` in all its forms."""

    type: str = TYPE_PREFIX + "consumer_create_response"
    info: Embedded[ConsumerInfo | None] = None


class ConsumerInfoResponse(Response):
    """`CONSUMER.INFO`."""

    type: str = TYPE_PREFIX + "consumer_info_response"
    info: Embedded[ConsumerInfo | None] = None


class ConsumerResetResponse(Response):
    """`CONSUMER.RESET`."""

    type: str = TYPE_PREFIX + "consumer_reset_response"
    info: Embedded[ConsumerInfo | None] = None
    reset_seq: Uint64 = 0


class ConsumerDeleteResponse(SuccessResponse):
    """`CONSUMER.DELETE`."""

    type: str = TYPE_PREFIX + "consumer_delete_response"


class ConsumerPauseResponse(Response):
    """`CONSUMER.PAUSE`."""

    type: str = TYPE_PREFIX + "consumer_pause_response"
    paused: bool = False
    pause_until: TimeNs = 0
    pause_remaining: Omitempty[DurationNs] = 0


class ConsumerUnpinResponse(Response):
    """`CONSUMER.UNPIN`."""

    type: str = TYPE_PREFIX + "consumer_unpin_response"


class ConsumerNamesResponse(Response):
    """`CONSUMER.NAMES`."""

    type: str = TYPE_PREFIX + "consumer_names_response"
    page: Embedded[Paged] = Paged()
    consumers: list[str] = Field(default_factory=list)


class AccountPurgeResponse(Response):
    """`ACCOUNT.PURGE`."""

    type: str = TYPE_PREFIX + "account_purge_response"
    initiated: Omitempty[bool] = False


class ConsumerListResponse(Response):
    """`CONSUMER.LIST`."""

    type: str = TYPE_PREFIX + "consumer_list_response"
    page: Embedded[Paged] = Paged()
    consumers: list[ConsumerInfo] = Field(default_factory=list)
    missing: Omitempty[list[str]] = Field(default_factory=list)
    offline: Omitempty[dict[str, str]] = Field(default_factory=dict)


class ConsumerLeaderStepDownResponse(SuccessResponse):
    """`CONSUMER.LEADER.STEPDOWN`."""

    type: str = TYPE_PREFIX + "consumer_leader_stepdown_response"


class PubAck(Model):
    """The answer to a publish."""

    stream: str
    seq: Uint64
    domain: Omitempty[str] = ""
    duplicate: Omitempty[bool] = False
    val: Omitempty[str] = ""
    batch: Omitempty[str] = ""
    count: Omitempty[Uint64] = 0
