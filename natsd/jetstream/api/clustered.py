"""API requests that only a cluster can serve: who leads, and which servers have replicas.

A server that is not part of a cluster answers with error 10010, as nats-server 2.14 does.

Source: nats-server's `jsStreamLeaderStepDownRequest`, `jsLeaderServerRemoveRequest` and the
functions beside them in its jetstream_api.go.
"""

from typing import TYPE_CHECKING, Any

from natsd.jetstream.api.request import NoBody, Request
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.models.requests import (
    LeaderStepDownRequest,
    MetaServerRemoveRequest,
    StreamMoveRequest,
    StreamRemovePeerRequest,
)
from natsd.jetstream.models.responses import (
    ConsumerLeaderStepDownResponse,
    LeaderStepDownResponse,
    MetaServerRemoveResponse,
    StreamLeaderStepDownResponse,
    StreamRemovePeerResponse,
    StreamUpdateResponse,
)
from natsd.jetstream.models.stream import Placement
from natsd.jetstream.short_hash import short_hash

if TYPE_CHECKING:
    from natsd.jetstream.account import JetStreamAccount
    from natsd.jetstream.meta_group.cluster import JetStreamCluster


async def remove_peer(request: Request[StreamRemovePeerRequest]) -> StreamRemovePeerResponse:
    """Give a stream a replica on another server in place of that on `peer`."""
    cluster = _cluster_of(request)
    if not request.body.peer:
        raise api_error(ErrorId.JSBadRequestErr)
    assigned = cluster.assignments.find(request.account.name, request.stream)
    if assigned is None:
        raise api_error(ErrorId.JSStreamNotFoundErr)
    wanted = request.body.peer
    servers = assigned.servers + assigned.read_replicas
    found = [each for each in servers if wanted in (each, short_hash(each.encode()))]
    if not found:
        raise api_error(ErrorId.JSClusterPeerNotMemberErr)
    if not await cluster.changes.move_off(assigned, found[0], is_avoided=True):
        raise api_error(ErrorId.JSPeerRemapErr)
    return StreamRemovePeerResponse(success=True)


async def stream_stepdown(request: Request[LeaderStepDownRequest]) -> StreamLeaderStepDownResponse:
    """Have another server lead a stream."""
    _step_down(request)
    return StreamLeaderStepDownResponse(success=True)


async def consumer_stepdown(
    request: Request[LeaderStepDownRequest],
) -> ConsumerLeaderStepDownResponse:
    """Have another server lead a consumer: it is led where its stream is."""
    _cluster_of(request)
    if request.account.consumer(request.stream, request.consumer).server:  # it has one replica
        raise api_error(ErrorId.JSClusterNoPeersErrF, err="no suitable peers for placement")
    _step_down(request)
    return ConsumerLeaderStepDownResponse(success=True)


async def meta_stepdown(request: Request[LeaderStepDownRequest]) -> LeaderStepDownResponse:
    """Have another server lead the cluster."""
    cluster = _cluster_of(request)
    if not cluster.step_down(cluster.meta.group, _preferred(request.body)):
        raise api_error(ErrorId.JSClusterNoPeersErrF, err="no suitable peers for placement")
    return LeaderStepDownResponse(success=True)


async def remove_server(request: Request[MetaServerRemoveRequest]) -> MetaServerRemoveResponse:
    """Remove a server from the cluster for good."""
    cluster, body = _cluster_of(request), request.body
    names = [
        each
        for each in cluster.assignments.servers
        if each == body.peer or (body.peer_id and short_hash(each.encode()) == body.peer_id)
    ]
    if not names or not await cluster.remove_server(names[0]):
        raise api_error(ErrorId.JSClusterServerNotMemberErr)
    return MetaServerRemoveResponse(success=True)


async def move(request: Request[StreamMoveRequest]) -> StreamUpdateResponse:
    """Move a stream off a server, to one with the placement."""
    cluster, account, name = _of_account(request)
    body = request.body
    placement = Placement(cluster=body.cluster, tags=body.tags)
    await cluster.changes.move(account, name, body.server, placement)
    return await _moved(cluster, account, name)


async def cancel_move(request: Request[NoBody]) -> StreamUpdateResponse:
    """Leave a stream that is being moved where it was."""
    cluster, account, name = _of_account(request)
    await cluster.changes.cancel_move(account, name)
    return await _moved(cluster, account, name)


def _of_account(request: Request[Any]) -> "tuple[JetStreamCluster, JetStreamAccount, str]":
    """Return the account and the stream that a request of the system account names."""
    cluster, (account, name) = _cluster_of(request), request.arguments
    if account not in request.accounts:
        raise api_error(ErrorId.JSNotEnabledForAccountErr)
    return cluster, request.accounts[account], name


async def _moved(
    cluster: "JetStreamCluster", account: "JetStreamAccount", name: str
) -> StreamUpdateResponse:
    assigned = cluster.assignments.find(account.name, name)
    if assigned is None:
        raise api_error(ErrorId.JSStreamNotFoundErr)
    return StreamUpdateResponse(info=await cluster.changes.info(assigned))


def _cluster_of(request: Request[Any]) -> "JetStreamCluster":
    cluster = request.cluster
    if cluster is None:
        raise api_error(ErrorId.JSClusterRequiredErr)
    return cluster


def _step_down(request: Request[LeaderStepDownRequest]) -> None:
    cluster = _cluster_of(request)
    local = cluster.streams.find(request.account.name, request.stream)
    if local is None:
        raise api_error(ErrorId.JSStreamNotFoundErr)
    if local.group is not None and not cluster.step_down(local.group, _preferred(request.body)):
        raise api_error(ErrorId.JSClusterNoPeersErrF, err="no suitable peers for placement")


def _preferred(body: LeaderStepDownRequest) -> str:
    return "" if body.placement is None else body.placement.preferred
