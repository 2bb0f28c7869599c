"""The actions that the system account may request: RELOAD, KICK and LDM.

Source: nats-server's `reloadConfig`, `kickClient` and `ldmClient` (server/events.go), and the texts
of `DisconnectClientByID` and `LDMClientByID` (server/server.go).
"""

import inspect
from collections.abc import Callable
from typing import Final

from natsd.clients import Client
from natsd.core.reasons import ClosedReason
from natsd.monitor.observed import ObservedServer

NO_FILE: Final = "can only reload config when a file is provided using -c or --config"
NOBODY_TO_KICK: Final = "no such client or leafnode id"
NOBODY_TO_MOVE: Final = "no such client id"
CANNOT_MOVE: Final = (
    "client does not support Lame Duck Mode or is not ready to receive the notification"
)


class ActionRefused(Exception):
    """The action was not carried out; the text says why."""


async def reload(reload_file: Callable[[], object] | None) -> None:
    """Reload the configuration file. Raises ActionRefused if that changes nothing."""
    if reload_file is None:
        raise ActionRefused(NO_FILE)
    try:
        done = reload_file()
        if inspect.isawaitable(done):
            await done
    except Exception as error:
        raise ActionRefused(str(error)) from error


def kick(server: ObservedServer, cid: int) -> None:
    """Close a client's connection. Raises ActionRefused."""
    _client(server, cid, NOBODY_TO_KICK).close(ClosedReason.KICKED)


def move(server: ObservedServer, cid: int) -> None:
    """Tell a client to connect to another server. Raises ActionRefused."""
    client = _client(server, cid, NOBODY_TO_MOVE)
    if not client.takes_info:
        raise ActionRefused(CANNOT_MOVE)
    client.announce_lame_duck()


def _client(server: ObservedServer, cid: int, nobody: str) -> Client:
    client = server.clients.get(cid)
    if client is None:
        raise ActionRefused(nobody)
    return client
