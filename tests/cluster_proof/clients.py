"""A client of nats-py that goes to another server when its own does not serve it.

nats-py changes the server only when the connection ends; a server that is paused or cut off keeps
its connections. So each failure leads to another server here.
"""

import asyncio
import contextlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

PATIENCE_S = 1.0
PAUSE_S = 0.02
FAILURES = (nats.errors.Error, OSError, TimeoutError, asyncio.InvalidStateError, AttributeError)
"""What nats-py raises when servers go away; the last two of closed connections."""

Json = dict[str, Any]


class Refused(Exception):
    """The answer is an error."""

    def __init__(self, error: Json) -> None:
        super().__init__(f"{error.get('err_code')}: {error.get('description')}")
        self.code: int = error.get("err_code", 0)
        self.description: str = error.get("description", "")


class RoamingClient:
    """A client that is connected to one of the servers at a time; several tasks may use it."""

    def __init__(self, urls: Sequence[str], chance: random.Random) -> None:
        self._urls = tuple(urls)
        self._chance = chance
        self._nc: Client | None = None
        self._connecting: asyncio.Task[None] | None = None

    async def connected(self) -> Client:
        """Return the connected client. Raises one of FAILURES if the server accepts none.

        Tasks that wait at the same time share one attempt, and its failure.
        """
        raise_if_cancelled()
        if self._nc is None or not self._nc.is_connected:
            if self._connecting is None or self._connecting.done():
                self._connecting = asyncio.ensure_future(self._connect())
            attempt = self._connecting
            await asyncio.wait([attempt])
            attempt.result()
        if self._nc is None:
            raise nats.errors.ConnectionClosedError
        return self._nc

    async def _connect(self) -> None:
        await self.move()
        self._nc = await connect(self._chance.choice(self._urls))

    async def move(self, left: Client | None = None) -> None:
        """Leave the server; with `left`: unless another task has left this connection before."""
        nc = self._nc
        if nc is not None and left in (None, nc):
            self._nc = None
            await close(nc)

    async def close(self) -> None:
        """Connect no more, and leave the server."""
        if self._connecting is not None:
            await asyncio.wait([self._connecting])
        await self.move()

    async def request(
        self,
        subject: str,
        data: bytes = b"",
        headers: Mapping[str, str] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> Msg:
        """Return the reply. Raises one of FAILURES; the next request goes to another server."""
        with uncancelled():
            nc = await self.connected()
            try:
                return await nc.request(
                    subject, data, patience_s, headers=dict(headers) if headers else None
                )
            except FAILURES:
                await self.move(nc)
                raise

    async def api(self, subject: str, patience_s: float = PATIENCE_S, **body: Any) -> Json:
        """Return the answer to a request to `$JS.API`. Raises Refused if it is an error."""
        data = json.dumps(body).encode() if body else b""
        return answer_in(await self.request(f"$JS.API.{subject}", data, patience_s=patience_s))

    async def api_soon(self, subject: str, deadline_s: float = 30.0, **body: Any) -> Json:
        """Ask again and again until there is an answer without an error."""
        last: Exception | None = None
        try:
            async with asyncio.timeout(deadline_s):
                while True:
                    try:
                        return await self.api(subject, **body)
                    except (*FAILURES, Refused) as error:
                        last = error
                    await asyncio.sleep(PAUSE_S)
        except TimeoutError:
            raise AssertionError(f"{subject}: no answer but {last!r}") from None


@contextlib.contextmanager
def uncancelled() -> Iterator[None]:
    """Turn the cancellation of nats-py's futures, which a lost connection causes, into an error."""
    try:
        yield
    except asyncio.CancelledError:
        raise_if_cancelled()
        raise nats.errors.ConnectionClosedError from None


def raise_if_cancelled() -> None:
    """Raise CancelledError if this task was cancelled, which nats-py may have hidden."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def answer_in(reply: Msg) -> Json:
    """Return the JSON of a reply. Raises Refused."""
    answer: Json = json.loads(reply.data)
    if error := answer.get("error"):
        raise Refused(error)
    return answer


async def connect(url: str) -> Client:
    """Connect to one server. Raises one of FAILURES if that does not succeed at once."""
    client = Client()
    try:
        async with asyncio.timeout(2 * PATIENCE_S):
            await client.connect(
                url,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=PATIENCE_S,
                error_cb=_ignore,
            )
    except BaseException:
        await close(client)
        raise
    return client


async def close(client: Client) -> None:
    """Close the connection, even if the server does not read."""
    with contextlib.suppress(*FAILURES):
        async with asyncio.timeout(PATIENCE_S):
            await client.close()


async def _ignore(_: Exception) -> None:
    """Ignore errors of a connection: the call that needed it fails."""
