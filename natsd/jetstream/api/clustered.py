"""Requests for what only a cluster can do: answered as a server without one answers, 10010.

Source: reference §6.2, §6.13; nats-server 2.14, tried.
"""

from natsd.jetstream.api.request import Request
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.models.requests import (
    LeaderStepDownRequest,
    StreamRemovePeerRequest,
)
from natsd.jetstream.models.responses import (
    ConsumerLeaderStepDownResponse,
    StreamLeaderStepDownResponse,
    StreamRemovePeerResponse,
)


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
