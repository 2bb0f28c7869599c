"""Connected nats-py clients that are closed at the end, whatever runs the test's loop.

client = await server.connect()          # closed when the loop ends, or the server stops
async with server.connect() as client:   # closed at the end of the block
    ...
"""

import asyncio
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from nats.aio.client import Client

CLOSE_TIMEOUT_S: Final = 10.0


class Connecting:
    """A connection that is being opened: await it, or use it as a context."""

    def __init__(self, clients: "TestedClients", settings: dict[str, Any]) -> None:
        self._clients = clients
        self._settings = settings
        self._opened: _Opened | None = None

    def __await__(self) -> "Generator[Any, None, Client]":
        return self._open().__await__()

    async def _open(self) -> "Client":
        self._opened = await self._clients.open(self._settings)
        return self._opened.client

    async def __aenter__(self) -> "Client":
        return await self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._opened is not None
        await self._opened.close()


@dataclass(frozen=True, slots=True)
class _Opened:
    """A client, its loop, and the generator whose end closes the client."""

    client: "Client"
    loop: asyncio.AbstractEventLoop
    closing: AsyncGenerator[None, None]

    async def close(self) -> None:
        """Close the client, unless it is closed; must be called on its loop."""
        await self.closing.aclose()


class TestedClients:
    """The clients that a test has opened on one server."""

    __test__ = False  # pytest would take the class for tests

    def __init__(self) -> None:
        self._opened: list[_Opened] = []

    async def open(self, settings: dict[str, Any]) -> _Opened:
        """Return a connected client. Raises ImportError if nats-py is not installed.

        An asynchronous generator closes the client when its loop ends: a loop that shuts down
        closes the generators that have begun on it.
        """
        try:
            import nats
        except ImportError as error:
            raise ImportError("connect() needs nats-py: pip install nats-py") from error
        client = await nats.connect(**settings)
        opened = _Opened(client, asyncio.get_running_loop(), _closing(client))
        await anext(opened.closing)
        self._opened.append(opened)
        return opened

    async def close(self) -> None:
        """Close the clients of the running loop, and those that `close_others` closes."""
        loop = asyncio.get_running_loop()
        for opened in self._opened:
            if opened.loop is loop:
                await opened.close()
        self.close_others()

    def close_others(self) -> None:
        """Close the clients of all loops except the running one.

        A loop that has ended has closed its clients. If a loop is running here, a loop that is not
        running cannot be run, and its clients stay.
        """
        current = asyncio._get_running_loop()
        for opened in self._opened:
            if opened.loop is current or opened.loop.is_closed():
                continue
            if opened.loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(opened.close(), opened.loop)
                closing.result(CLOSE_TIMEOUT_S)
            elif current is None:
                opened.loop.run_until_complete(opened.close())

    def open_cids(self, url: str) -> set[int]:
        """Return the ids of the connections that are open to the server with the URL."""
        port = int(url.rpartition(":")[2])
        return {
            opened.client.client_id
            for opened in self._opened
            if not opened.client.is_closed
            and opened.client.client_id is not None
            and opened.client.connected_url is not None
            and opened.client.connected_url.port == port
        }


async def _closing(client: "Client") -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await client.close()
