"""Questions that a server asks the others: each names its kind, and whom it concerns.

    first    the answer of the one server that has one: the leader of a stream, or of the meta group
    gather   the answers of all servers that are online, this one included

A question travels on `$JSC.ASK` in the system account; answers come to an inbox.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from msgspec import Struct

from natsd.accounts.internal_client import InternalClient
from natsd.jetstream.meta_group.answering import Unanswered
from natsd.jetstream.meta_group.peers import Peers

_logger = logging.getLogger(__name__)

SUBJECT: Final = "$JSC.ASK"
INBOX: Final = "$JSC.ANSWER.{}"
GATHER_S: Final = 2.0
INBOX_BYTES: Final = 12


class Question(Struct, frozen=True):
    """A question about an account, and perhaps about one of its streams."""

    kind: str
    account: str = ""
    stream: str = ""
    version: int = 0  # of the stream's assignment, which whoever answers must know
    body: bytes = b""
    timeout_s: float = GATHER_S


Answer = Callable[[Question], Awaitable[bytes | None]]
"""Answers a question; None: another server does."""

_questions = msgspec.json.Decoder(Question)


class Questions:
    """The questions from and to this server."""

    def __init__(
        self, client: InternalClient, peers: Peers, random_bytes: Callable[[int], bytes]
    ) -> None:
        """Use `client`, which is that of the system account."""
        self._client = client
        self._peers = peers
        self._random_bytes = random_bytes
        self._answers: dict[str, Answer] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, answers: dict[str, Answer]) -> None:
        """Answer questions of these kinds."""
        self._answers = answers
        self._client.subscribe(SUBJECT, self._asked)

    async def close(self) -> None:
        """End the answers that are being made."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def first(self, question: Question) -> bytes:
        """Return the first answer. Raises Unanswered after the question's time."""
        answers = await self._ask(question, 1)
        if not answers:
            raise Unanswered(f"{question.kind} {question.account} {question.stream}")
        return answers[0]

    async def gather(self, question: Question) -> list[bytes]:
        """Return the answers of all servers that are online; fewer if some do not answer."""
        return await self._ask(question, 1 + len(self._peers.online))

    async def _ask(self, question: Question, count: int) -> list[bytes]:
        answers: list[bytes] = []
        is_done = asyncio.Event()

        def answered(_subject: str, _reply: str | None, _headers: bytes, data: bytes) -> None:
            answers.append(data)
            if len(answers) >= count:
                is_done.set()

        inbox = INBOX.format(self._random_bytes(INBOX_BYTES).hex())
        subscription = self._client.subscribe(inbox, answered)
        try:
            self._client.publish(SUBJECT, msgspec.json.encode(question), reply=inbox)
            async with asyncio.timeout(question.timeout_s):
                await is_done.wait()
        except TimeoutError:
            pass
        finally:
            self._client.unsubscribe(subscription)
        return answers

    def _asked(self, _subject: str, inbox: str | None, _headers: bytes, data: bytes) -> None:
        try:
            question = _questions.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            _logger.warning("JetStream: a server's question is not understood: %s", error)
            return
        answer = self._answers.get(question.kind)
        if answer is not None and inbox is not None:
            task = asyncio.get_running_loop().create_task(self._answer(answer, question, inbox))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, answer: Answer, question: Question, inbox: str) -> None:
        try:
            async with asyncio.timeout(question.timeout_s):
                found = await answer(question)
        except TimeoutError:
            return
        except Exception:
            _logger.exception("JetStream: the question %s", question.kind)
            return
        if found is not None:
            self._client.publish(inbox, found)
