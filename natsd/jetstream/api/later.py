"""Requests for what one server does not do, or does not do yet: refused as documented.

- What only a cluster can do is answered as a server without one answers: 10010.
- What is not served yet is refused behind the checks that decide whether it could be served.

Source: reference §6.2, §6.13; nats-server 2.14, tried.
"""

from typing import Final

from natsd.core.subject import is_valid_publish
from natsd.jetstream.api.request import Request
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.models.requests import (
    LeaderStepDownRequest,
    StreamRemovePeerRequest,
    StreamRestoreRequest,
    StreamSnapshotRequest,
)
from natsd.jetstream.models.responses import (
    ConsumerLeaderStepDownResponse,
    StreamLeaderStepDownResponse,
    StreamRemovePeerResponse,
    StreamRestoreResponse,
    StreamSnapshotResponse,
)

NOT_SUPPORTED: Final = "not supported by this server"


async def remove_peer(
    _request: Request[StreamRemovePeerRequest],
) -> StreamRemovePeerResponse:
    """A stream of one server has no peers."""
    raise api_error(ErrorId.JSClusterRequiredErr)


async def stream_stepdown(
    _request: Request[LeaderStepDownRequest],
) -> StreamLeaderStepDownResponse:
    """Nobody else could lead."""
    raise api_error(ErrorId.JSClusterRequiredErr)


async def consumer_stepdown(
    _request: Request[LeaderStepDownRequest],
) -> ConsumerLeaderStepDownResponse:
    """Nobody else could lead."""
    raise api_error(ErrorId.JSClusterRequiredErr)


async def snapshot(request: Request[StreamSnapshotRequest]) -> StreamSnapshotResponse:
    """10064 once all else is in order."""
    request.account.stream(request.stream)
    if not is_valid_publish(request.body.deliver_subject):
        raise api_error(ErrorId.JSSnapshotDeliverSubjectInvalidErr)
    raise api_error(ErrorId.JSStreamSnapshotErrF, err=NOT_SUPPORTED)


async def restore(request: Request[StreamRestoreRequest]) -> StreamRestoreResponse:
    """10062 once all else is in order."""
    if request.body.config.name not in ("", request.stream):
        raise api_error(ErrorId.JSStreamMismatchErr)
    if request.stream in request.account.streams:
        raise api_error(ErrorId.JSStreamNameExistRestoreFailedErr)
    raise api_error(ErrorId.JSStreamRestoreErrF, err=NOT_SUPPORTED)
