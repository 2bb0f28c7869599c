"""API requests about an account.

Source: nats-server's `jsAccountInfoRequest` and `jsLeaderAccountPurgeRequest`.
"""

import logging

from natsd.jetstream.api.request import NoBody, Request
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.models.responses import AccountInfoResponse, AccountPurgeResponse

_logger = logging.getLogger(__name__)


async def info(request: Request[NoBody]) -> AccountInfoResponse:
    """Answer with usage, limits and request counts of the account."""
    return AccountInfoResponse(info=request.account.info())


async def purge(request: Request[NoBody]) -> AccountPurgeResponse:
    """Delete all streams of an account; an unknown account has none.

    Only the system account may ask.
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
    for stream in streams:
        assert account is not None
        if stream in account.streams or stream in account.offline:  # it may be deleted by now
            await account.delete_stream(stream)
    return AccountPurgeResponse(initiated=True)
