"""All subjects of the API: what is asked, by which model the body is read, who answers.

- A row's subject stands behind `$JS.API.`; its first wildcard is a stream, the second a consumer.
- `Body` says what may come with a request, `Served` who answers it and with which others it waits.
- Rows of `Served.ASSET` are served by the streams and consumers themselves, without JSON; those
  of `Served.SYSTEM` are for the system account, and without a handler for clusters.

Source: reference §6.2; nats-server 2.14, tried.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from natsd.jetstream.api import account, clustered, consumers, snapshots, streams
from natsd.jetstream.api.request import NoBody, Request
from natsd.jetstream.models.base import Model
from natsd.jetstream.models.requests import (
    ConsumerGetNextRequest,
    ConsumerPauseRequest,
    ConsumerResetRequest,
    ConsumersRequest,
    ConsumerUnpinRequest,
    CreateConsumerRequest,
    LeaderStepDownRequest,
    MetaServerRemoveRequest,
    StreamConfigRequest,
    StreamInfoRequest,
    StreamListRequest,
    StreamMoveRequest,
    StreamMsgDeleteRequest,
    StreamMsgGetRequest,
    StreamNamesRequest,
    StreamPurgeRequest,
    StreamRemovePeerRequest,
    StreamRestoreRequest,
    StreamSnapshotRequest,
)
from natsd.jetstream.models.response import Response
from natsd.jetstream.models.responses import SystemResponse

Handler = Callable[[Request[Any]], Awaitable[Response]]


class Body(Enum):
    """What the payload of a request may be."""

    ANY = "whatever it is"
    EMPTY = "nothing or {}: else 10038"
    MAYBE = "JSON if it looks like an object or an array, else ignored"
    JSON = "JSON; nothing is all defaults"
    MUST = "JSON with members: else 10003"
    ONE = "one JSON value"
    ONE_OR_NONE = "one JSON value; nothing is all defaults"


class Served(Enum):
    """Who answers a row, and with which others it waits."""

    CHANGE = "the router"
    INFO = "the router: questions wait apart from changes"
    ASSET = "the stream or consumer itself, without JSON"
    SYSTEM = "the router, in the system account"


@dataclass(frozen=True, slots=True)
class Route:
    """A row; a handler's annotation says what it answers."""

    subject: str
    request: type[Model]
    handler: Handler | None = None
    body: Body = Body.JSON
    served: Served = Served.CHANGE
    is_tracked: bool = True  # counted and audited when it succeeds, as each error is
    is_strict: bool = True  # unknown members are refused, unless the server lets all be

    @property
    def response(self) -> type[Response]:
        return SystemResponse if self.handler is None else _response_of(self.handler)

    def arguments(self, subject: str) -> tuple[str, ...]:
        """What stands for the wildcards in a subject (without the prefix) that matches."""
        tokens, pattern = subject.split("."), self.subject.split(".")
        if pattern[-1] == ">":
            tokens[len(pattern) - 1 :] = [".".join(tokens[len(pattern) - 1 :])]
        return tuple(
            token for token, wild in zip(tokens, pattern, strict=True) if wild in ("*", ">")
        )


@functools.cache
def _response_of(handler: Handler) -> type[Response]:
    response: type[Response] = inspect.get_annotations(handler, eval_str=True)["return"]
    return response


ANY, EMPTY, MAYBE, MUST = Body.ANY, Body.EMPTY, Body.MAYBE, Body.MUST
ONE, ONE_OR_NONE = Body.ONE, Body.ONE_OR_NONE
INFO, ASSET, SYSTEM = Served.INFO, Served.ASSET, Served.SYSTEM

# fmt: off  columns, to be read as a table
ROUTES: Final = (
    # the account
    Route("INFO", NoBody, account.info, ANY, INFO),
    # streams and messages
    Route("STREAM.CREATE.*", StreamConfigRequest, streams.create),
    Route("STREAM.UPDATE.*", StreamConfigRequest, streams.update),
    Route("STREAM.INFO.*", StreamInfoRequest, streams.info, MAYBE, INFO),
    Route("STREAM.NAMES", StreamNamesRequest, streams.names, MAYBE, INFO),
    Route("STREAM.LIST", StreamListRequest, streams.infos, MAYBE, INFO),
    Route("STREAM.DELETE.*", NoBody, streams.delete, EMPTY),
    Route("STREAM.PURGE.*", StreamPurgeRequest, streams.purge, MAYBE),
    Route("STREAM.MSG.GET.*", StreamMsgGetRequest, streams.msg_get, MUST, INFO, False),
    Route("STREAM.MSG.DELETE.*", StreamMsgDeleteRequest, streams.msg_delete, MUST),
    Route("STREAM.SNAPSHOT.*", StreamSnapshotRequest, snapshots.snapshot, MUST),
    Route("STREAM.RESTORE.*", StreamRestoreRequest, snapshots.restore, MUST),
    Route("STREAM.PEER.REMOVE.*", StreamRemovePeerRequest, clustered.remove_peer, ANY),
    Route("STREAM.LEADER.STEPDOWN.*", LeaderStepDownRequest, clustered.stream_stepdown, ANY),
    # consumers
    Route("CONSUMER.CREATE.*", CreateConsumerRequest, consumers.create),
    Route("CONSUMER.CREATE.*.>", CreateConsumerRequest, consumers.named_create),
    Route("CONSUMER.DURABLE.CREATE.*.*", CreateConsumerRequest, consumers.durable_create),
    Route("CONSUMER.NAMES.*", ConsumersRequest, consumers.names, MAYBE, INFO),
    Route("CONSUMER.LIST.*", ConsumersRequest, consumers.infos, MAYBE, INFO),
    Route("CONSUMER.INFO.*.*", NoBody, consumers.info, EMPTY, INFO),
    Route("CONSUMER.DELETE.*.*", NoBody, consumers.delete, EMPTY),
    Route("CONSUMER.PAUSE.*.*", ConsumerPauseRequest, consumers.pause, MAYBE),
    Route("CONSUMER.UNPIN.*.*", ConsumerUnpinRequest, consumers.unpin, ONE, is_strict=False),
    Route(
        "CONSUMER.RESET.*.*", ConsumerResetRequest, consumers.reset, ONE_OR_NONE, is_strict=False
    ),
    Route("CONSUMER.LEADER.STEPDOWN.*.*", LeaderStepDownRequest, clustered.consumer_stepdown, ANY),
    # served by streams and consumers: pull requests and direct gets
    Route("CONSUMER.MSG.NEXT.*.*", ConsumerGetNextRequest, served=ASSET),
    Route("DIRECT.GET.*", StreamMsgGetRequest, served=ASSET),
    Route("DIRECT.GET.*.>", NoBody, served=ASSET),
    # in the system account
    Route("META.LEADER.STEPDOWN", LeaderStepDownRequest, served=SYSTEM),
    Route("SERVER.REMOVE", MetaServerRemoveRequest, served=SYSTEM),
    Route("ACCOUNT.PURGE.*", NoBody, account.purge, ANY, SYSTEM),
    Route("ACCOUNT.STREAM.MOVE.*.*", StreamMoveRequest, served=SYSTEM),
    Route("ACCOUNT.STREAM.CANCEL_MOVE.*.*", NoBody, served=SYSTEM),
)
# fmt: on
