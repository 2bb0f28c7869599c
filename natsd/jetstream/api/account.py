"""Requests about the account.

Source: reference §6.15.
"""

from natsd.jetstream.api.request import NoBody, Request
from natsd.jetstream.models.responses import AccountInfoResponse


async def info(request: Request[NoBody]) -> AccountInfoResponse:
    """Use, limits and how many requests there were."""
    return AccountInfoResponse(info=request.account.info())
