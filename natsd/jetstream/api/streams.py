"""API requests about streams and their messages.

Rules about requests are checked here, rules about configurations in `stream/config.py`.

Source: the stream functions of nats-server's jetstream_api.go, for example `jsStreamCreateRequest`;
answers were compared with a running nats-server 2.14.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from natsd.core.steps import Steps, run_cooperatively
from natsd.jetstream.api.paging import page_of
from natsd.jetstream.api.request import NoBody, Request
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.models.requests import (
    StreamConfigRequest,
    StreamInfoRequest,
    StreamListRequest,
    StreamMsgDeleteRequest,
    StreamMsgGetRequest,
    StreamNamesRequest,
    StreamPurgeRequest,
)
from natsd.jetstream.models.response import Paged
from natsd.jetstream.models.responses import (
    StreamCreateResponse,
    StreamDeleteResponse,
    StreamInfoResponse,
    StreamListResponse,
    StreamMsgDeleteResponse,
    StreamMsgGetResponse,
    StreamNamesResponse,
    StreamPurgeResponse,
    StreamUpdateResponse,
)
from natsd.jetstream.models.stream import ClusterInfo, StreamInfo
from natsd.jetstream.names import LIST_LIMIT, NAMES_LIMIT, SUBJECT_DETAILS_LIMIT
from natsd.jetstream.stream.info import stream_info
from natsd.jetstream.stream.metadata import with_shown_metadata
from natsd.jetstream.stream.reading import names_one_message

if TYPE_CHECKING:
    from natsd.jetstream.meta_group.cluster import JetStreamCluster


async def create(request: Request[StreamConfigRequest]) -> StreamCreateResponse:
    """Create a stream, or find one that exists already with the same configuration."""
    config = request.body.config
    _check_name(request.stream, config.name)
    if not {"/", "\\"}.isdisjoint(config.name):
        raise api_error(ErrorId.JSStreamNameContainsPathSeparatorsErr)
    if config.sealed:
        text = "stream configuration for create can not be sealed"
        raise api_error(ErrorId.JSStreamInvalidConfigF, err=text)
    if config.mirror_direct and config.mirror is None:
        text = "stream has no mirror but does have mirror direct"
        raise api_error(ErrorId.JSStreamInvalidConfigF, err=text)
    account, pedantic = request.account, request.body.pedantic
    if request.cluster is not None:
        found = await request.cluster.changes.create(account, config, pedantic=pedantic)
    else:
        stream, _ = await account.create_stream(config, pedantic=pedantic)
        found = await stream.info()
    created = with_shown_metadata(found).model_copy(update={"domain": ""})
    # nats-server sets did_create for existing streams too, and omits the domain only here.
    return StreamCreateResponse(info=created, did_create=True)


async def update(request: Request[StreamConfigRequest]) -> StreamUpdateResponse:
    """Change the configuration of a stream."""
    config, account, pedantic = request.body.config, request.account, request.body.pedantic
    if request.cluster is not None:
        _check_name(request.stream, config.name)
        found = await request.cluster.changes.update(account, config, pedantic=pedantic)
        return StreamUpdateResponse(info=with_shown_metadata(found))
    if request.stream != config.name or request.stream not in account.streams:
        await account.check_config(config, pedantic=pedantic)  # checked first
    _check_name(request.stream, config.name)
    stream = await account.update_stream(config, pedantic=pedantic)
    return StreamUpdateResponse(info=with_shown_metadata(await stream.info()))


async def info(request: Request[StreamInfoRequest]) -> StreamInfoResponse:
    """Answer with configuration and state; a filter adds the number of messages per subject."""
    body, stream = request.body, request.account.stream(request.stream)
    offset = max(body.offset, 0)
    found, total = await stream.info_page(
        deleted_details=body.deleted_details, subjects_filter=body.subjects_filter, offset=offset
    )
    if request.cluster is not None:
        found = request.cluster.shown(found, stream)
    else:
        leader = ClusterInfo(leader=request.account.jetstream.server_name)
        found = found.model_copy(update={"cluster": leader})
    page = Paged(total=total, offset=offset, limit=SUBJECT_DETAILS_LIMIT) if total else Paged()
    return StreamInfoResponse(page=page, info=with_shown_metadata(found))


async def names(request: Request[StreamNamesRequest]) -> StreamNamesResponse:
    """Answer with a page of stream names, sorted."""
    chosen, page = page_of(_names(request, request.body.subject), request.body.offset, NAMES_LIMIT)
    return StreamNamesResponse(page=page, streams=list(chosen) or None)


async def infos(request: Request[StreamListRequest]) -> StreamListResponse:
    """Answer with a page of stream infos, sorted by name.

    Streams that cannot be served are listed with the reason.
    """
    account = request.account
    if request.cluster is not None:
        return await _infos_of_cluster(request, request.cluster)
    matching = _names(request, request.body.subject)
    rest, page = page_of(matching, request.body.offset, len(matching))
    gathered, offline = list[StreamInfo](), dict[str, str]()

    def gather() -> Steps[None]:
        for name in rest:
            if name in account.offline:
                offline[name] = account.offline[name]
            elif name in account.streams:  # it may be deleted by now
                gathered.append(stream_info(account.streams[name]))
            if len(gathered) == LIST_LIMIT:
                break
            yield

    await run_cooperatively(gather())
    return StreamListResponse(
        page=page.model_copy(update={"limit": LIST_LIMIT}),
        streams=gathered,
        missing=list(offline),
        offline=offline,
    )


async def _infos_of_cluster(
    request: Request[StreamListRequest], cluster: "JetStreamCluster"
) -> StreamListResponse:
    """Return the infos that the streams' leaders give; streams without one are missing."""
    matching = _names(request, request.body.subject)
    names, page = page_of(matching, request.body.offset, LIST_LIMIT)
    found = await cluster.list_streams(request.account.name, names)
    missing = [name for name in names if name not in found]
    return StreamListResponse(
        page=page, streams=[found[name] for name in names if name in found], missing=missing
    )


async def delete(request: Request[NoBody]) -> StreamDeleteResponse:
    """Delete a stream with its messages and consumers."""
    account = request.account
    if request.cluster is not None:
        await request.cluster.changes.delete(account, request.stream)
    else:
        await account.delete_stream(request.stream)
    return StreamDeleteResponse(success=True)


async def purge(request: Request[StreamPurgeRequest]) -> StreamPurgeResponse:
    """Remove all messages, or those that the body selects."""
    body = request.body
    if body.seq and body.keep:
        raise api_error(ErrorId.JSBadRequestErr)
    stream = request.account.stream(request.stream)
    purged = await stream.purge(body.filter, body.seq, body.keep)
    return StreamPurgeResponse(success=True, purged=purged)


async def msg_get(request: Request[StreamMsgGetRequest]) -> StreamMsgGetResponse:
    """Answer with one message."""
    if not names_one_message(request.body):
        raise api_error(ErrorId.JSBadRequestErr)
    stream = request.account.stream(request.stream)
    return StreamMsgGetResponse(message=await stream.get_message(request.body))


async def msg_delete(request: Request[StreamMsgDeleteRequest]) -> StreamMsgDeleteResponse:
    """Delete one message, and overwrite its bytes on disk unless the body says otherwise."""
    stream = request.account.stream(request.stream)
    await stream.delete_message(request.body.seq, erase=not request.body.no_erase)
    return StreamMsgDeleteResponse(success=True)


def _check_name(in_subject: str, in_body: str) -> None:
    if in_subject != in_body:
        raise api_error(ErrorId.JSStreamMismatchErr)


def _names(
    request: Request[StreamNamesRequest] | Request[StreamListRequest], subject: str
) -> Sequence[str]:
    """Return all names, or those of streams with a subject that overlaps `subject`."""
    account = request.account
    if request.cluster is not None:
        if subject:
            return sorted(account.claims.owners(subject))
        assigned = request.cluster.assignments.of_account(account.name)
        return [each.name for each in assigned]
    if subject:
        return [stream.name for stream in account.streams_with(subject)]
    return sorted({*account.streams, *account.offline})
