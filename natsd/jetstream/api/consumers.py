"""API requests about consumers.

The three forms of a create differ in what the subject contains:

    CONSUMER.CREATE.<stream>                        no name: an ephemeral (form of old clients)
    CONSUMER.DURABLE.CREATE.<stream>.<consumer>     a durable (form of old clients)
    CONSUMER.CREATE.<stream>.<consumer>[.<filter>]  either; permissions can be given by filter

Source: nats-server's `jsConsumerCreateRequest` and the other consumer functions of its
jetstream_api.go; errors were compared with a running nats-server 2.14.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from natsd.cluster.route import Route
from natsd.core.steps import Steps, run_cooperatively
from natsd.jetstream.api.paging import page_of
from natsd.jetstream.api.request import NoBody, Request
from natsd.jetstream.consumer.config import is_group_name
from natsd.jetstream.consumer.consumer import Consumer
from natsd.jetstream.consumer.info import with_shown_metadata
from natsd.jetstream.consumer.metadata import read_replica, refusal
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.meta_group.read_replica_consumers import no_read_replica
from natsd.jetstream.models.consumer import ConsumerConfig, ConsumerInfo
from natsd.jetstream.models.go_json import encoded
from natsd.jetstream.models.requests import (
    ConsumerPauseRequest,
    ConsumerResetRequest,
    ConsumersRequest,
    ConsumerUnpinRequest,
    CreateConsumerRequest,
)
from natsd.jetstream.models.responses import (
    ConsumerCreateResponse,
    ConsumerDeleteResponse,
    ConsumerInfoResponse,
    ConsumerListResponse,
    ConsumerNamesResponse,
    ConsumerPauseResponse,
    ConsumerResetResponse,
    ConsumerUnpinResponse,
)
from natsd.jetstream.names import LIST_LIMIT, NAMES_LIMIT
from natsd.jetstream.stream.stream import Stream


async def create(request: Request[CreateConsumerRequest]) -> ConsumerCreateResponse:
    """Create an ephemeral consumer, named by the server unless the body names it."""
    config = request.body.config
    _check_stream(request)
    _check_separators(config.name)
    if config.durable_name:
        raise api_error(ErrorId.JSConsumerEphemeralWithDurableNameErr)
    return await _create(request, config)


async def durable_create(
    request: Request[CreateConsumerRequest],
) -> ConsumerCreateResponse:
    """Create a durable consumer."""
    config, name = request.body.config, request.consumer
    _check_stream(request)
    _check_separators(name)
    if not config.durable_name:
        raise api_error(ErrorId.JSConsumerDurableNameNotSetErr)
    if config.durable_name != name:
        raise api_error(ErrorId.JSConsumerDurableNameNotMatchSubjectErr)
    return await _create(request, config.model_copy(update={"name": name}))


async def named_create(request: Request[CreateConsumerRequest]) -> ConsumerCreateResponse:
    """Create a consumer whose name, and filter if it has one, is part of the subject."""
    config = request.body.config
    name, _, filter_subject = request.consumer.partition(".")
    _check_stream(request)
    _check_separators(name)
    if config.durable_name and config.durable_name != name:
        raise api_error(ErrorId.JSConsumerDurableNameNotMatchSubjectErr)
    if filter_subject and config.filter_subjects:
        raise api_error(ErrorId.JSConsumerMultipleFiltersNotAllowed)
    if filter_subject and config.filter_subject != filter_subject:
        raise api_error(ErrorId.JSConsumerCreateFilterSubjectMismatchErr)
    return await _create(request, config.model_copy(update={"name": name}))


async def info(request: Request[NoBody]) -> ConsumerInfoResponse:
    """Answer with configuration and state of a consumer."""
    consumer = _consumer(request)
    _check_served(request, consumer)
    await consumer.counted()
    return ConsumerInfoResponse(info=_info(request, consumer))


async def names(request: Request[ConsumersRequest]) -> ConsumerNamesResponse:
    """Answer with a page of consumer names, sorted."""
    chosen, page = page_of(_names(request), request.body.offset, NAMES_LIMIT)
    return ConsumerNamesResponse(page=page, consumers=list(chosen))


async def infos(request: Request[ConsumersRequest]) -> ConsumerListResponse:
    """Answer with a page of consumer infos, sorted by name.

    Consumers that cannot be served are listed with the reason.
    """
    stream = request.account.stream(request.stream)
    chosen, page = page_of(_names(request), request.body.offset, LIST_LIMIT)
    gathered, offline = list[ConsumerInfo](), dict[str, str]()
    served = await _served_elsewhere(request, chosen)

    def gather() -> Steps[None]:
        for name in chosen:
            consumer = stream.consumers.get(name)
            if name in stream.offline_consumers.reasons:
                offline[name] = stream.offline_consumers.reasons[name]
            elif consumer is not None and consumer.server:
                if name in served:
                    gathered.append(served[name])
                else:
                    offline[name] = _why_offline(request, consumer)
            elif consumer is not None:  # it may be deleted by now
                shown = consumer.info(encoded(consumer.config))
                gathered.append(_with_cluster(request, consumer, shown))
            yield

    await run_cooperatively(gather())
    return ConsumerListResponse(
        page=page, consumers=gathered, missing=list(offline), offline=offline
    )


async def delete(request: Request[NoBody]) -> ConsumerDeleteResponse:
    """Delete a consumer with its state."""
    await request.account.stream(request.stream).delete_consumer(request.consumer)
    return ConsumerDeleteResponse(success=True)


async def pause(request: Request[ConsumerPauseRequest]) -> ConsumerPauseResponse:
    """Pause deliveries until the given time, or resume them."""
    return await _consumer(request).pause(request.body.pause_until)


async def reset(request: Request[ConsumerResetRequest]) -> ConsumerResetResponse:
    """Restart delivery at a sequence, or behind the ack floor."""
    consumer = request.account.stream(request.stream).consumer(request.consumer)
    _check_served(request, consumer)
    sequence = await consumer.reset(request.body.seq)
    await consumer.counted()
    return ConsumerResetResponse(info=_info(request, consumer), reset_seq=sequence)


async def unpin(request: Request[ConsumerUnpinRequest]) -> ConsumerUnpinResponse:
    """Unpin the pinned client of a priority group."""
    group = request.body.group
    if not group:
        raise api_error(ErrorId.JSInvalidJSONErr, err="consumer group not specified")
    if not is_group_name(group):
        raise api_error(ErrorId.JSConsumerInvalidGroupNameErr)
    consumer = request.account.stream(request.stream).consumer(request.consumer)
    _check_served(request, consumer)
    consumer.unpin(group)
    return ConsumerUnpinResponse()


def _check_stream(request: Request[CreateConsumerRequest]) -> None:
    if request.body.stream_name != request.stream:
        raise api_error(ErrorId.JSStreamMismatchErr)


def _check_separators(name: str) -> None:
    if not {"/", "\\"}.isdisjoint(name):
        raise api_error(ErrorId.JSConsumerNameContainsPathSeparatorsErr)


async def _create(
    request: Request[CreateConsumerRequest], config: ConsumerConfig
) -> ConsumerCreateResponse:
    if config.num_replicas > 1 and request.cluster is None:
        raise api_error(ErrorId.JSStreamReplicasNotSupportedErr)
    stream, body = request.account.stream(request.stream), request.body
    if read_replica(config):
        config = _placed(request, stream, config)
    consumer = await stream.create_consumer(config, body.action, pedantic=body.pedantic)
    if consumer.server and request.cluster is not None:
        await stream.agreed()
        info = await request.cluster.read_replica_consumers.info(consumer)
        text = encoded(with_shown_metadata(consumer.config))
        return ConsumerCreateResponse(info=msgspec.structs.replace(info, config=text))
    return ConsumerCreateResponse(info=_info(request, consumer))


def _placed(
    request: Request[CreateConsumerRequest], stream: Stream, config: ConsumerConfig
) -> ConsumerConfig:
    """Return the configuration with the server whose read replica serves the consumer."""
    if request.cluster is None:
        raise refusal("on a read replica needs a cluster")
    requester = request.origin.remote_name if isinstance(request.origin, Route) else ""
    return request.cluster.read_replica_consumers.placed(stream, config, requester)


async def _served_elsewhere(
    request: Request[ConsumersRequest], names: Sequence[str]
) -> dict[str, ConsumerInfo]:
    """Return the infos of those of the consumers that read replicas serve."""
    stream = request.account.stream(request.stream)
    shown = (stream.consumers.get(name) for name in names)
    if request.cluster is None or not any(each is not None and each.server for each in shown):
        return {}
    return await request.cluster.read_replica_consumers.infos(stream)


def _check_served(request: Request[Any], consumer: Consumer) -> None:
    """Raise ApiError 10119, or 10195, if a read replica is to serve the consumer, and does not."""
    if consumer.server and not consumer.is_serving:
        if request.cluster is None:
            raise api_error(ErrorId.JSConsumerOfflineErr)
        raise request.cluster.read_replica_consumers.why_not(consumer)


def _why_offline(request: Request[Any], consumer: Consumer) -> str:
    cluster = request.cluster
    if cluster is not None and not cluster.read_replica_consumers.has_server(consumer):
        return no_read_replica(consumer)
    return f"server '{consumer.server}' does not serve it"


def _info(request: Request[Any], consumer: Consumer) -> ConsumerInfo:
    """Return the info for an answer about one consumer."""
    config = encoded(with_shown_metadata(consumer.config))
    return _with_cluster(request, consumer, consumer.info(config))


def _with_cluster(request: Request[Any], consumer: Consumer, info: ConsumerInfo) -> ConsumerInfo:
    """Return the info with the servers of the consumer.

    These are the servers of its stream, or the one whose read replica serves it.
    """
    if request.cluster is None:
        return info
    if consumer.server:
        servers = request.cluster.read_replica_consumers.cluster_of(consumer)
        return msgspec.structs.replace(info, cluster=encoded(servers))
    local = request.cluster.streams.find(request.account.name, request.stream)
    if local is None:
        return info
    return msgspec.structs.replace(info, cluster=encoded(request.cluster.stream_cluster(local)))


def _consumer(request: Request[NoBody] | Request[ConsumerPauseRequest]) -> Consumer:
    return request.account.consumer(request.stream, request.consumer)


def _names(request: Request[ConsumersRequest]) -> Sequence[str]:
    """Return all names, sorted, without the consumers that the server itself uses."""
    stream = request.account.stream(request.stream)
    served = [each.name for each in stream.public_consumers]
    return sorted([*served, *stream.offline_consumers.reasons])
