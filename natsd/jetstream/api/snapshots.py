"""API requests for a snapshot or a restore of a stream; the transfer continues after the answer.

Source: nats-server's `jsStreamSnapshotRequest` and `jsStreamRestoreRequest`; answers were compared
with a running nats-server 2.14.
"""

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from natsd.core.routing import is_valid_publish
from natsd.jetstream import advisories
from natsd.jetstream.api.request import Request
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.headers import CHOOSE_BLOCKS, header_value
from natsd.jetstream.models.requests import StreamRestoreRequest, StreamSnapshotRequest
from natsd.jetstream.models.responses import StreamRestoreResponse, StreamSnapshotResponse
from natsd.jetstream.models.stream import Storage, StreamInfo
from natsd.jetstream.names import restore_subject, snapshot_ack_prefix
from natsd.jetstream.snapshot.builder import StreamBuilder
from natsd.jetstream.snapshot.consumers import check_consumer
from natsd.jetstream.snapshot.replicating import builder_of, identity, unfinished
from natsd.jetstream.snapshot.restoring import Restoring
from natsd.jetstream.snapshot.sending import COMPLETE, SnapshotSending, bytes_held
from natsd.jetstream.snapshot.source import SnapshotSource
from natsd.jetstream.snapshot.taking import check_messages, freeze_stream
from natsd.jetstream.stream.metadata import with_shown_metadata
from natsd.jetstream.stream.settings_in_metadata import copies
from natsd.store.errors import StoreError

if TYPE_CHECKING:
    from natsd.jetstream.account import JetStreamAccount
    from natsd.jetstream.account_resources import AccountResources
    from natsd.jetstream.meta_group.cluster import JetStreamCluster
    from natsd.jetstream.nats_server.snapshot_reader import NatsServerSnapshot

TRANSFERS_MAX: Final = 64
"""Largest number of running snapshots and restores of an account."""

_logger = logging.getLogger(__name__)


async def snapshot(request: Request[StreamSnapshotRequest]) -> StreamSnapshotResponse:
    """Start to send the stream's present state to the deliver subject."""
    account, body = request.account, request.body
    stream = account.stream(request.stream)
    if not is_valid_publish(body.deliver_subject):
        raise api_error(ErrorId.JSSnapshotDeliverSubjectInvalidErr)
    if not stream.is_filed:  # nats-server's text for a memory stream
        raise api_error(ErrorId.JSStreamSnapshotErrF, err="no impl")
    _check_transfers(account)
    began_ns = account.jetstream.scheduler.now_ns()
    try:
        taken = await freeze_stream(
            stream, partial(unfinished, account), with_consumers=not body.no_consumers
        )
    except (StoreError, OSError) as error:
        raise api_error(ErrorId.JSStreamSnapshotErrF, err=error) from error
    try:
        if body.jsck:
            await check_messages(taken)
    except BaseException:
        await taken.release()
        raise
    share = account.jetstream.transfer_memory.share()
    if not share.hold(bytes_held(body, taken.state.bytes)):
        await taken.release()
        raise api_error(ErrorId.JSInsufficientResourcesErr)
    is_chosen = header_value(request.headers, CHOOSE_BLOCKS) is not None
    source = SnapshotSource(account.jetstream.volume, taken, is_chosen=is_chosen)
    sending = SnapshotSending(
        request.transfer_account,
        account.jetstream.scheduler,
        source,
        body,
        snapshot_ack_prefix(stream.name, identity(account)),
        share,
    )
    advisories.snapshot_create(account, stream.name, taken.state, request.client)
    work = _send(account, stream.name, sending, source, request.client, began_ns)
    _begin(work, account.transfers, stream.transfers)
    return StreamSnapshotResponse(config=taken.image.asset.config, state=taken.state)


async def _send(
    account: "AccountResources",
    stream: str,
    sending: SnapshotSending,
    source: SnapshotSource,
    client: advisories.Client,
    began_ns: int,
) -> None:
    name = f"{account.name} > {stream}"
    status = await sending.run()
    if source.lost:
        _logger.error(
            "JetStream: %d damaged messages are not in the snapshot of stream '%s'",
            source.lost,
            name,
        )
    if status != COMPLETE:
        _logger.warning("JetStream: snapshot of stream '%s' failed: %s", name, status)
        return
    _logger.info("Completed snapshot of %s bytes for stream '%s'", f"{sending.bytes_sent:,}", name)
    now_ns = account.jetstream.scheduler.now_ns()
    advisories.snapshot_complete(account, stream, began_ns, now_ns, client)


async def restore(request: Request[StreamRestoreRequest]) -> StreamRestoreResponse:
    """Start a restore, and answer with the subject that takes the snapshot's chunks."""
    account, name = request.account, request.stream
    config = request.body.config
    if not config.name:
        config = config.model_copy(update={"name": name})
    if config.name != name:
        raise api_error(ErrorId.JSStreamMismatchErr)
    if not {"/", "\\"}.isdisjoint(name):
        raise api_error(ErrorId.JSStreamNameContainsPathSeparatorsErr)
    if request.cluster is not None:
        config = await request.cluster.changes.check_restore(account, config)
    else:
        config = await account.check_restore(config)
    if config.storage is Storage.MEMORY:
        raise api_error(ErrorId.JSStreamRestoreErrF, err="no impl")
    _check_transfers(account)
    builder = builder_of(account, config.name, partial(check_consumer, account), config=config)
    try:
        await builder.begin()
    except OSError as error:
        raise api_error(ErrorId.JSTempStorageFailedErr) from error
    subject = restore_subject(name, identity(account))
    restoring = Restoring(
        request.transfer_account,
        account.name,
        account.jetstream.scheduler,
        account.jetstream.volume,
        account.tiers.of(config.num_replicas).usage,
        copies(config),
        subject,
        name,
        builder,
        partial(_collect, account),
        partial(_install, account, request.cluster),
        account.jetstream.transfer_memory.share(),
    )
    advisories.restore_create(account, name, request.client)
    _begin(_receive(account, name, restoring, request.client), account.transfers)
    return StreamRestoreResponse(deliver_subject=subject)


async def _receive(
    account: "AccountResources", name: str, restoring: Restoring, client: advisories.Client
) -> None:
    began_ns = account.jetstream.scheduler.now_ns()
    if await restoring.run():
        size = restoring.bytes_received
        now_ns = account.jetstream.scheduler.now_ns()
        _logger.info(
            "Completed restore of %s bytes for stream '%s > %s'", f"{size:,}", account.name, name
        )
        advisories.restore_complete(account, name, began_ns, now_ns, size, client)


async def _install(
    account: "JetStreamAccount", cluster: "JetStreamCluster | None", builder: StreamBuilder
) -> StreamInfo:
    if cluster is not None:
        return await cluster.changes.restore(account, builder.asset, builder.directory)
    stream = await account.restore_stream(builder.asset, builder.directory)
    return with_shown_metadata(await stream.info())


def _collect(account: "JetStreamAccount") -> "NatsServerSnapshot":
    # Not at the top: few servers ever get a snapshot of nats-server.
    from natsd.jetstream.nats_server.snapshot_reader import NatsServerSnapshot

    return NatsServerSnapshot(account.jetstream.volume, unfinished(account))


def _check_transfers(account: "JetStreamAccount") -> None:
    if len(account.transfers) >= TRANSFERS_MAX:
        raise api_error(ErrorId.JSInsufficientResourcesErr)


def _begin(work: Coroutine[Any, Any, None], *owners: set[asyncio.Task[None]]) -> None:
    """Run `work` after the answer; its owners cancel their transfers when they end."""
    task = asyncio.get_running_loop().create_task(_logged(work))
    for tasks in owners:
        tasks.add(task)
        task.add_done_callback(tasks.discard)


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except (StoreError, OSError) as error:
        _logger.error("JetStream: %s", error)
    except Exception:
        _logger.exception("JetStream: a snapshot or restore failed")
