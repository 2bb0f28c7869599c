"""Messages that one replica of a stream lacks, from the other replicas: for damaged blocks.

    copies  ── member, store, sequences, on $JSC.REPAIR.<group>, reply: inbox ──▶  that member
            ◀── frames on the inbox, reply: acknowledgements ── closed blocks (transfer.py)

    request   member u64 │ store u8 │ sequences: an encoded SequenceSet
    store     0: messages   1: those that wait for their time

Promise
- A replica sends only messages that verify, and that are committed: those that are durable in its
  files. Nothing is repaired there for that, so replicas never wait for each other.
- The members are asked one after another, each for what the others did not have. A member that does
  not answer, or has not got that far, is asked again until PATIENCE_S have passed.
- At most SENT_AT_ONCE requests for a stream are answered at a time; more are refused.
"""

import asyncio
import contextlib
import struct
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final, TypeAlias

from natsd.accounts.internal_client import InternalClient
from natsd.core.routing import Subscription
from natsd.jetstream.replicas.catch_up import Members
from natsd.jetstream.replicas.frames import Flow, Receiving, Sending, TransferFailed, refuse
from natsd.store.errors import DamagedEncoding
from natsd.store.file_store import FileStore
from natsd.store.sequence_set import SequenceSet

SUBJECT: Final = "$JSC.REPAIR.{}"
INBOX: Final = "$JSC.REPAIR.{}.{}"
INBOX_BYTES: Final = 12
REQUEST: Final = struct.Struct("<QB")
SENT_AT_ONCE: Final = 4
SILENCE_S: Final = 3.0
PATIENCE_S: Final = 30.0
RETRY_S: Final = 0.5

Files: TypeAlias = Callable[[], Sequence[FileStore]]
"""Returns the stores of this member; none if it lacks something at the moment."""


class MessageTransfer:
    """Messages of one group's stream, from and to this server."""

    def __init__(
        self, client: InternalClient, group: str, random_bytes: Callable[[int], bytes]
    ) -> None:
        """Use `client`, which is that of the system account."""
        self._client = client
        self._group = group
        self._random_bytes = random_bytes
        self._member = 0
        self._files: Files = tuple
        self._subscription: Subscription | None = None
        self._sending = Sending()
        self._is_over = asyncio.Event()

    def offer(self, member: int, files: Files) -> None:
        """Answer requests to this member from now on."""
        self._member, self._files = member, files
        self._subscription = self._client.subscribe(SUBJECT.format(self._group), self._asked)

    async def withdraw(self) -> None:
        """Answer nothing more, and end what is under way, here and in `copies`."""
        self._is_over.set()
        if self._subscription is not None:
            self._client.unsubscribe(self._subscription)
            self._subscription = None
        await self._sending.interrupt()

    # Here messages are lacking

    async def copies(
        self, members: Members, store: int, lacking: SequenceSet
    ) -> AsyncGenerator[bytes]:
        """Yield closed blocks with some of the messages; the caller takes them from `lacking`."""
        loop = asyncio.get_running_loop()
        gives_up_at = loop.time() + PATIENCE_S
        answered = {self._member}
        while not self._is_over.is_set():
            waiting = [each for each in members() if each not in answered]
            for member in waiting:
                images = self._fetch(member, store, lacking)
                with contextlib.suppress(TransferFailed):
                    async with contextlib.aclosing(images):
                        async for image in images:
                            yield image
                    answered.add(member)
                if not lacking:
                    return
            if answered.issuperset(waiting) or loop.time() > gives_up_at:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S):
                    await self._is_over.wait()

    async def _fetch(self, member: int, store: int, lacking: SequenceSet) -> AsyncGenerator[bytes]:
        """Yield what one member has. Raises TransferFailed."""
        inbox = self._inbox()
        receiving = Receiving(self._client, SILENCE_S)
        subscription = self._client.subscribe(inbox, receiving.take)
        request = REQUEST.pack(member, store) + lacking.encode()
        try:
            self._client.publish(SUBJECT.format(self._group), request, reply=inbox)
            async for _, image in receiving.entries():
                yield image
        finally:
            self._client.unsubscribe(subscription)

    def _inbox(self) -> str:
        return INBOX.format(self._group, self._random_bytes(INBOX_BYTES).hex())

    # Here they may be

    def _asked(self, _subject: str, inbox: str | None, _headers: bytes, data: bytes) -> None:
        if inbox is None or len(data) < REQUEST.size:
            return
        member, store = REQUEST.unpack_from(data)
        if member != self._member:
            return
        try:
            wanted = SequenceSet.decode(data[REQUEST.size :])
        except DamagedEncoding:
            return
        if len(self._sending) >= SENT_AT_ONCE:
            refuse(self._client, inbox, "too many messages are asked for")
            return
        flow = Flow(self._client, inbox, self._inbox())
        self._sending.begin(flow, self._send(store, wanted, flow))

    async def _send(self, store: int, wanted: SequenceSet, flow: Flow) -> None:
        stores = self._files()
        if store >= len(stores) or stores[store].durable_sequence < (wanted.last or 0):
            flow.refuse("it has not got that far")
            return
        entries = _as_entries(stores[store].intact(wanted))
        await flow.send_all(entries)


async def _as_entries(images: AsyncGenerator[bytes]) -> AsyncGenerator[tuple[str, bytes]]:
    """Yield closed blocks as entries, which need no names."""
    async with contextlib.aclosing(images):
        async for image in images:
            yield "", image
