"""The table of all API subjects, with the model of the body and the handler.

- A row's subject follows `$JS.API.`; its first wildcard is a stream, the second a consumer.
- `Body` says what a request may carry, `Served` what answers it and which queue it waits in.
- Rows of `Served.ASSET` are served by the streams and consumers themselves, without JSON. Rows of
  `Served.SYSTEM` are for the system account; those without a handler need a cluster.

Source: nats-server's jetstream_api.go (`JSApi…` subjects); bodies were compared with a running
nats-server 2.14.
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
    """Allowed payloads of a request."""

    ANY = "whatever it is"
    EMPTY = "nothing or {}: else 10038"
    MAYBE = "JSON if it looks like an object or an array, else ignored"
    JSON = "JSON; nothing is all defaults"
    MUST = "JSON with members: else 10003"
    ONE = "one JSON value"
    ONE_OR_NONE = "one JSON value; nothing is all defaults"


class Served(Enum):
    """What answers a row, and which queue its requests wait in."""

    CHANGE = "the router"
    INFO = "the router: questions wait apart from changes"
    ASSET = "the stream or consumer itself, without JSON"
    SYSTEM = "the router, in the system account"


@dataclass(frozen=True, slots=True)
class Route:
    """A row of the table; the handler's return annotation is the type of the answer."""

    subject: str
    request: type[Model]
    handler: Handler | None = None
    body: Body = Body.JSON
    served: Served = Served.CHANGE
    is_tracked: bool = True  # counted and audited on success; errors always are
    is_strict: bool = True  # unknown members are refused, unless the server's `strict` is off
    needs_cluster: bool = False  # answered with error 10010 by a server that is in none
    is_of_stream: bool = False  # in a cluster the stream's leader answers, not that of the cluster
    needs_consumer: bool = False  # or the server with the read replica that serves the consumer

    @property
    def response(self) -> type[Response]:
        """Type of the answer."""
        return SystemResponse if self.handler is None else _response_of(self.handler)

    def arguments(self, subject: str) -> tuple[str, ...]:
        """Return the tokens at the wildcards of a matching subject (without the prefix)."""
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

INFO_SUBJECT: Final = "INFO"

ROUTES: Final = (
    # the account
    Route(INFO_SUBJECT, NoBody, account.info, ANY, INFO),
    # streams and messages
    Route("STREAM.CREATE.*", StreamConfigRequest, streams.create),
    Route("STREAM.UPDATE.*", StreamConfigRequest, streams.update),
    Route("STREAM.INFO.*", StreamInfoRequest, streams.info, MAYBE, INFO, is_of_stream=True),
    Route("STREAM.NAMES", StreamNamesRequest, streams.names, MAYBE, INFO),
    Route("STREAM.LIST", StreamListRequest, streams.infos, MAYBE, INFO),
    Route("STREAM.DELETE.*", NoBody, streams.delete, EMPTY),
    Route("STREAM.PURGE.*", StreamPurgeRequest, streams.purge, MAYBE, is_of_stream=True),
    Route(
        "STREAM.MSG.GET.*",
        StreamMsgGetRequest,
        streams.msg_get,
        MUST,
        INFO,
        False,
        is_of_stream=True,
    ),
    Route(
        "STREAM.MSG.DELETE.*", StreamMsgDeleteRequest, streams.msg_delete, MUST, is_of_stream=True
    ),
    Route("STREAM.SNAPSHOT.*", StreamSnapshotRequest, snapshots.snapshot, MUST, is_of_stream=True),
    Route("STREAM.RESTORE.*", StreamRestoreRequest, snapshots.restore, MUST),
    Route("STREAM.PEER.REMOVE.*", StreamRemovePeerRequest, clustered.remove_peer, MAYBE),
    Route(
        "STREAM.LEADER.STEPDOWN.*",
        LeaderStepDownRequest,
        clustered.stream_stepdown,
        MAYBE,
        is_of_stream=True,
    ),
    # consumers
    Route("CONSUMER.CREATE.*", CreateConsumerRequest, consumers.create, is_of_stream=True),
    Route("CONSUMER.CREATE.*.>", CreateConsumerRequest, consumers.named_create, is_of_stream=True),
    Route(
        "CONSUMER.DURABLE.CREATE.*.*",
        CreateConsumerRequest,
        consumers.durable_create,
        is_of_stream=True,
    ),
    Route("CONSUMER.NAMES.*", ConsumersRequest, consumers.names, MAYBE, INFO, is_of_stream=True),
    Route("CONSUMER.LIST.*", ConsumersRequest, consumers.infos, MAYBE, INFO, is_of_stream=True),
    Route(
        "CONSUMER.INFO.*.*",
        NoBody,
        consumers.info,
        EMPTY,
        INFO,
        is_of_stream=True,
        needs_consumer=True,
    ),
    Route("CONSUMER.DELETE.*.*", NoBody, consumers.delete, EMPTY, is_of_stream=True),
    Route("CONSUMER.PAUSE.*.*", ConsumerPauseRequest, consumers.pause, MAYBE, is_of_stream=True),
    Route(
        "CONSUMER.UNPIN.*.*",
        ConsumerUnpinRequest,
        consumers.unpin,
        ONE,
        is_strict=False,
        is_of_stream=True,
        needs_consumer=True,
    ),
    Route(
        "CONSUMER.RESET.*.*",
        ConsumerResetRequest,
        consumers.reset,
        ONE_OR_NONE,
        is_strict=False,
        is_of_stream=True,
        needs_consumer=True,
    ),
    Route(
        "CONSUMER.LEADER.STEPDOWN.*.*",
        LeaderStepDownRequest,
        clustered.consumer_stepdown,
        MAYBE,
        is_of_stream=True,
    ),
    # served by streams and consumers: pull requests and direct gets
    Route("CONSUMER.MSG.NEXT.*.*", ConsumerGetNextRequest, served=ASSET),
    Route("DIRECT.GET.*", StreamMsgGetRequest, served=ASSET),
    Route("DIRECT.GET.*.>", NoBody, served=ASSET),
    # in the system account
    Route(
        "META.LEADER.STEPDOWN",
        LeaderStepDownRequest,
        clustered.meta_stepdown,
        MAYBE,
        SYSTEM,
        needs_cluster=True,
    ),
    Route(
        "SERVER.REMOVE",
        MetaServerRemoveRequest,
        clustered.remove_server,
        MAYBE,
        SYSTEM,
        needs_cluster=True,
    ),
    Route("ACCOUNT.PURGE.*", NoBody, account.purge, ANY, SYSTEM),
    Route(
        "ACCOUNT.STREAM.MOVE.*.*",
        StreamMoveRequest,
        clustered.move,
        MAYBE,
        SYSTEM,
        needs_cluster=True,
    ),
    Route(
        "ACCOUNT.STREAM.CANCEL_MOVE.*.*",
        NoBody,
        clustered.cancel_move,
        ANY,
        SYSTEM,
        needs_cluster=True,
    ),
)
# fmt: on
