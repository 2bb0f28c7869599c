"""A stream on its way from a replica that has it to one that lacks something; see CatchUp.

    ask     ── number of commands, on $JSC.SYNC.<group>, reply: inbox ────▶  all other replicas
            ◀── member, whether it has so many ─────────────────────────────

    fetch   ── number of commands, member, on $JSC.SYNC.<group>, reply: inbox ────▶  that member
            ◀── frames on the inbox, reply: acknowledgements ──  entries (stream_image.py)
            ── bytes received so far, on acknowledgements ────▶

The subjects are those of the system account, which routes carry between servers.

Promise
- A transfer that ends early may be tried again, from the beginning (frames.py).
- At most SENT_AT_ONCE transfers of a stream run; more are refused.
"""

import asyncio
import struct
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final

from natsd.accounts.internal_client import InternalClient
from natsd.core.routing import Subscription
from natsd.jetstream.replicas.catch_up import Members, Source
from natsd.jetstream.replicas.frames import Flow, Receiving, Sending, TransferFailed, refuse
from natsd.jetstream.replicas.message_transfer import MessageTransfer
from natsd.jetstream.replicas.stream_image import BuiltStream, build, entries_of
from natsd.jetstream.stream.stream import Stream
from natsd.store.file_store import FileStore
from natsd.store.sequence_set import SequenceSet

SUBJECT: Final = "$JSC.SYNC.{}"
INBOX: Final = "$JSC.SYNC.{}.{}"
ASK_S: Final = 1.0
ASKED_TIMES: Final = 10
SENT_AT_ONCE: Final = 2
INBOX_BYTES: Final = 12

REQUEST: Final = struct.Struct("<QQ")
ANSWER: Final = struct.Struct("<Q?")
ALL: Final = 0
"""No member: the request asks all of them whether they have the stream."""


class StreamTransfer:
    """The transfers of one group's stream from and to this server (`CatchUp`)."""

    def __init__(
        self, client: InternalClient, group: str, random_bytes: Callable[[int], bytes]
    ) -> None:
        """Use `client`, which is that of the system account."""
        self._client = client
        self._group = group
        self._random_bytes = random_bytes
        self._messages = MessageTransfer(client, group, random_bytes)
        self._member = ALL
        self._source: Source | None = None
        self._subscription: Subscription | None = None
        self._sending = Sending()

    # Here is a replica that lacks something

    async def ask(self, applied: int) -> dict[int, bool]:
        """See CatchUp; it takes ASK_S."""
        return await self._ask(applied, is_one_enough=False)

    async def fetch(self, stream: Stream, applied: int) -> BuiltStream:
        """See CatchUp. Raises TransferFailed, DamagedEncoding, StoreError, OSError."""
        member = await self._find(applied)
        inbox = self._inbox()
        receiving = Receiving(self._client)
        subscription = self._client.subscribe(inbox, receiving.take)
        try:
            self._client.publish(self._subject, REQUEST.pack(applied, member), reply=inbox)
            return await build(stream, receiving.entries())
        finally:
            self._client.unsubscribe(subscription)

    def copies(self, members: Members, store: int, lacking: SequenceSet) -> AsyncGenerator[bytes]:
        """See CatchUp."""
        return self._messages.copies(members, store, lacking)

    async def _find(self, applied: int) -> int:
        """Return a member that has so many commands. Raises TransferFailed."""
        for _ in range(ASKED_TIMES):
            for member, has_it in (await self._ask(applied, is_one_enough=True)).items():
                if has_it:
                    return member
        raise TransferFailed("no replica has the stream")

    async def _ask(self, applied: int, *, is_one_enough: bool) -> dict[int, bool]:
        answers: dict[int, bool] = {}
        is_enough = asyncio.Event()

        def take(_subject: str, _reply: str | None, _headers: bytes, data: bytes) -> None:
            if len(data) == ANSWER.size:
                member, has_it = ANSWER.unpack(data)
                answers[member] = has_it
                if has_it and is_one_enough:
                    is_enough.set()

        inbox = self._inbox()
        subscription = self._client.subscribe(inbox, take)
        try:
            self._client.publish(self._subject, REQUEST.pack(applied, ALL), reply=inbox)
            async with asyncio.timeout(ASK_S):
                await is_enough.wait()
        except TimeoutError:
            pass
        finally:
            self._client.unsubscribe(subscription)
        answers.pop(self._member, None)
        return answers

    @property
    def _subject(self) -> str:
        return SUBJECT.format(self._group)

    def _inbox(self) -> str:
        return INBOX.format(self._group, self._random_bytes(INBOX_BYTES).hex())

    # Here is a replica that has it

    def offer(self, member: int, source: Source) -> None:
        """See CatchUp."""
        self._member, self._source = member, source
        self._subscription = self._client.subscribe(self._subject, self._asked)
        self._messages.offer(member, self._files)

    def _files(self) -> Sequence[FileStore]:
        """Return the stream's stores with files; none if it lacks something."""
        assert self._source is not None
        stream = self._source(0)
        return () if stream is None else stream.file_stores

    async def interrupt(self) -> None:
        """See CatchUp."""
        await self._sending.interrupt()

    async def withdraw(self) -> None:
        """See CatchUp."""
        if self._subscription is not None:
            self._client.unsubscribe(self._subscription)
            self._subscription = None
        await self._messages.withdraw()
        await self.interrupt()

    def _asked(self, _subject: str, inbox: str | None, _headers: bytes, data: bytes) -> None:
        if inbox is None or len(data) != REQUEST.size:
            return
        assert self._source is not None
        applied, member = REQUEST.unpack(data)
        if member == ALL:
            has_it = self._source(applied) is not None
            self._client.publish(inbox, ANSWER.pack(self._member, has_it))
        elif member != self._member:
            return
        elif len(self._sending) >= SENT_AT_ONCE:
            refuse(self._client, inbox, "too many transfers are under way")
        else:
            flow = Flow(self._client, inbox, self._inbox())
            self._sending.begin(flow, self._send(applied, flow))

    async def _send(self, applied: int, flow: Flow) -> None:
        assert self._source is not None
        stream = self._source(applied)  # the image begins in this turn: no change comes between
        if stream is None:
            flow.refuse("it has the stream no more")
            return
        await flow.send_all(entries_of(stream))
