"""API requests about an account.

Source: nats-server's `jsAccountInfoRequest` and `jsLeaderAccountPurgeRequest`.
"""

import logging

from natsd.jetstream.account_resources import why_no_directory
from natsd.jetstream.api.request import NoBody, Request
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.models.responses import AccountInfoResponse, AccountPurgeResponse
from natsd.store.errors import StoreError

_logger = logging.getLogger(__name__)


async def info(request: Request[NoBody]) -> AccountInfoResponse:
    """Answer with usage, limits and request counts of the account."""
    if request.cluster is None:
        return AccountInfoResponse(info=request.account.info())
    return AccountInfoResponse(info=await request.cluster.account_info(request.account))


async def purge(request: Request[NoBody]) -> AccountPurgeResponse:
    """Delete all streams of an account; an unknown account has none.

    An account that is not served may have files, which are deleted too. Only the system account may
    ask.
    """
    name = request.arguments[0]
    if not {"/", "\\"}.isdisjoint(name):
        text = "account name can not contain path separators"
        raise api_error(ErrorId.JSStreamGeneralErrorF, err=text)
    account = request.accounts.get(name)
    streams = [] if account is None else [*account.streams, *account.offline]
    has_account = str(account is not None).lower()
    _logger.info(
        "Purge request for account %s (streams: %d, hasAccount: %s)",
        name,
        len(streams),
        has_account,
    )
    if account is None:
        await _remove_files(request, name)
    elif request.cluster is not None:
        for each in request.cluster.assignments.of_account(name):
            await request.cluster.changes.delete(account, each.name)
        return AccountPurgeResponse(initiated=True)
    for stream in streams:
        assert account is not None
        if stream in account.streams or stream in account.offline:  # it may be deleted by now
            await account.delete_stream(stream)
    return AccountPurgeResponse(initiated=True)


async def _remove_files(request: Request[NoBody], name: str) -> None:
    """Delete the directory of an account that is not served. Raises ApiError."""
    jetstream = request.account.jetstream
    async with jetstream.configuring(name):
        if why_no_directory(name) or name in request.accounts:
            return
        try:
            await jetstream.volume.remove_tree(jetstream.directory / name)
        except (StoreError, OSError) as error:
            raise api_error(ErrorId.JSStreamGeneralErrorF, err=error) from error
