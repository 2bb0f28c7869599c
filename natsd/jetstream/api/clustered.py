"""API requests that only a cluster can serve.

They are answered with error 10010, as nats-server 2.14 without a cluster answers.
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
    """Refuse: a stream of a single server has no peers. Raises ApiError 10010."""
    raise api_error(ErrorId.JSClusterRequiredErr)


async def stream_stepdown(
    _request: Request[LeaderStepDownRequest],
) -> StreamLeaderStepDownResponse:
    """Refuse: no other server could lead the stream. Raises ApiError 10010."""
    raise api_error(ErrorId.JSClusterRequiredErr)


async def consumer_stepdown(
    _request: Request[LeaderStepDownRequest],
) -> ConsumerLeaderStepDownResponse:
    """Refuse: no other server could lead the consumer. Raises ApiError 10010."""
    raise api_error(ErrorId.JSClusterRequiredErr)
