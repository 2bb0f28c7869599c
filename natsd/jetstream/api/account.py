"""Requests about the account.

Source: reference §6.2, §6.15.
"""

import logging

from natsd.jetstream.api.request import NoBody, Request
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.models.responses import AccountInfoResponse, AccountPurgeResponse

_logger = logging.getLogger(__name__)


async def info(request: Request[NoBody]) -> AccountInfoResponse:
    """Use, limits and how many requests there were."""
    return AccountInfoResponse(info=request.account.info())


async def purge(request: Request[NoBody]) -> AccountPurgeResponse:
    """All streams of an account go; one that nobody knows has none. The system account asks."""
    name = request.arguments[0]
    if not {"/", "\\"}.isdisjoint(name):
        text = "account name can not contain path separators"
        raise api_error(ErrorId.JSStreamGeneralErrorF, err=text)
    account = request.account.jetstream.accounts.get(name)
    streams = [] if account is None else [*account.streams, *account.offline]
    has_account = str(account is not None).lower()
    _logger.info(
        "Purge request for account %s (streams: %d, hasAccount: %s)",
        name,
        len(streams),
        has_account,
    )
    for stream in streams:
        assert account is not None
        await account.delete_stream(stream)
    return AccountPurgeResponse(initiated=True)
