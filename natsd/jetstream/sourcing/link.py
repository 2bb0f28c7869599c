"""Link: one origin of a stream, and the consumer there that delivers to the stream.

    begin ─▶ asking ──▶ listening ──▶ a message is missing or refused, or nothing arrives
              ▲ │ refused, no answer                │
              │ ▼                                   │
             waiting ◀──────────────────────────────┘

Promise
- The link asks for messages from the stream's end on: no stored message is requested again, and no
  missing one is omitted.
- A link ends only with `end`: whatever the origin does, the link retries (backoff.py). There is one
  alarm and at most one task per link.
- A living consumer sends at least once a second (its heartbeat); a link that receives nothing for
  HEALTH_NS starts again.
- A thousand links ask one after the other, each in its own turn of the event loop; they wait for
  the answers concurrently.
- The link uses only subjects of its account, so the origin may be on another server.

Source: nats-server's `setupMirrorConsumer` and `trySetupSourceConsumer`.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from natsd.accounts import NoRespondersError
from natsd.core.routing import Subscription
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.headers import REQUIRED_API_LEVEL
from natsd.jetstream.models.go_json import InvalidJson, decode, encode
from natsd.jetstream.models.response import ErrorBody
from natsd.jetstream.models.stream import StreamSourceInfo
from natsd.jetstream.names import API_LEVEL
from natsd.jetstream.short_hash import short_hash
from natsd.jetstream.sourcing.backoff import resume_delay_ns, retry_delay_ns
from natsd.jetstream.sourcing.origin import Origin, OriginConsumer, OriginStart
from natsd.jetstream.sourcing.receiving import LOST, Receiver
from natsd.jetstream.sourcing.troubles import BEGINS_ANEW, CANNOT_BE_FILLED, Troubles
from natsd.jetstream.stream.publishing import Ingest
from natsd.jetstream.stream.state import Alarm
from natsd.store.errors import StoreError

if TYPE_CHECKING:
    from natsd.jetstream.account_resources import AccountResources
    from natsd.jetstream.server_resources import ServerResources

HEALTH_NS: Final = 10_000_000_000
RESPONSE_S: Final = 30.0
SUFFIX_BYTES: Final = 16
_LEVEL: Final = f"NATS/1.0\r\n{REQUIRED_API_LEVEL}: {API_LEVEL}\r\n\r\n".encode()
_SID: Final = b"0"
_OLD: Final = (ErrorId.JSRequiredApiLevelErr.value[0], ErrorId.JSInvalidJSONErr.value[0])
"""Errors of a server that does not know `sourcing`."""


class OriginRefused(Exception):
    """The origin's answer is an error, or cannot be used."""

    def __init__(self, error: ErrorBody) -> None:
        super().__init__(error.description)
        self.error = error


class FilledByLink(Protocol):
    """The stream that a link fills."""

    ingest: Ingest
    jetstream: "ServerResources"

    @property
    def account(self) -> "AccountResources":
        """The account."""


class LinkOwner(Protocol):
    """The sourcing of the stream: it knows the position in each origin."""

    troubles: Troubles
    placing: asyncio.Lock

    @property
    def stream(self) -> FilledByLink:
        """The stream that is filled."""

    async def start_of(self, link: "Link") -> tuple[int, OriginStart]:
        """Return the last sequence received from the origin (0: none), and where to start."""

    def placed(self, link: "Link") -> None:
        """Note that the link knows its position."""

    def caught_up(self, link: "Link") -> None:
        """Note that the stream has nearly all messages of the origin."""


class Link:
    """A link; between `begin` and `end` the stream gets the origin's messages."""

    def __init__(self, sourcing: LinkOwner, origin: Origin) -> None:
        self.origin = origin
        self._sourcing = sourcing
        self._stream = sourcing.stream
        self._scheduler = self._stream.jetstream.scheduler
        self._random_bytes = self._stream.jetstream.random_bytes
        self._account = self._stream.account.account
        self.receiver = Receiver(self._stream.ingest, self._told, origin.mappings, origin.header)
        self._alarm = Alarm(self._scheduler, self._due)
        self._subscription: Subscription | None = None
        self._task: asyncio.Task[None] | None = None
        self._consumer = ""  # name at the origin; empty: none
        self._error: ErrorBody | None = None  # of the last setup, for the stream's info
        self._fails = 0  # failed setups in a row
        self._setbacks = 0  # interruptions in a row without progress
        self._began_at = 0  # sequence of the origin at the last setup
        self._is_placed = False
        self._is_open = False  # between `begin` and `end`

    # Start and stop

    def begin(self) -> None:
        """Start to fill the stream."""
        self._is_open = True
        self._alarm.set(self._scheduler.now_ns())

    def end(self, *, is_gone: bool) -> None:
        """Stop for good.

        `is_gone` says that the link is removed, so the consumer may be deleted; otherwise the
        consumer is used again after the next start.
        """
        self._is_open = False
        self._alarm.cancel()
        self._stop_asking()
        if is_gone and not self._consumer:  # it may exist without an answer yet
            self._consumer = self.origin.stable_name
        self._hang_up(is_gone=is_gone)

    def change(self, origin: Origin) -> None:
        """Continue with another configuration of the same origin."""
        if origin == self.origin:
            return
        self._stop_asking()
        self._hang_up(is_gone=origin.stable_name != self.origin.stable_name)
        self.origin = origin
        self._wake_in(0)

    @property
    def is_placed(self) -> bool:
        """Whether `receiver.sequence` is the position in the origin."""
        return self._is_placed and self.receiver.is_current

    def info(self) -> StreamSourceInfo:
        """Return the state of the link for the stream's info."""
        receiver, source = self.receiver, self.origin.source
        heard_ns = receiver.heard_ns
        return StreamSourceInfo(
            name=source.name,
            external=source.external,
            lag=receiver.lag,
            active=self._scheduler.now_ns() - heard_ns if heard_ns else -1,
            error=self._error,
            filter_subject=source.filter_subject,
            subject_transforms=source.subject_transforms,
        )

    # Events

    def _wake_in(self, delay_ns: int) -> None:
        if self._is_open:
            self._alarm.set(self._scheduler.now_ns() + delay_ns)

    def _due(self, now_ns: int) -> None:
        if self._task is not None:
            return
        if self._subscription is None:
            self._task = self._stream.jetstream.loop.create_task(self._set_up())
        elif now_ns - self.receiver.heard_ns >= HEALTH_NS:
            self._set_back("nothing was heard of it")
        else:
            self._wake_in(self.receiver.heard_ns + HEALTH_NS - now_ns)

    def _told(self) -> None:
        """Handle the receiver's call: it has stopped with an error, or it has caught up."""
        if self.receiver.trouble:
            self._is_placed = self._is_placed and self.receiver.trouble != LOST
            self._set_back(self.receiver.trouble)
        elif self._is_open:
            self._sourcing.caught_up(self)

    def _set_back(self, why: str) -> None:
        """Start again after a setback."""
        if not self._is_open or self._subscription is None:
            return
        has_come_on = self.receiver.sequence > self._began_at
        self._setbacks = 1 if has_come_on else self._setbacks + 1
        level = logging.DEBUG if has_come_on else logging.WARNING
        self._sourcing.troubles.note(BEGINS_ANEW, self.origin.name, why, level)
        self._hang_up(is_gone=self._consumer != self.origin.stable_name)
        self._wake_in(resume_delay_ns(self._setbacks, self._chance()))

    def _hang_up(self, *, is_gone: bool) -> None:
        """Unsubscribe; `is_gone` deletes the consumer too."""
        self.receiver.stop()
        if self._subscription is not None:
            self._account.sublist.remove(self._subscription)
            self._subscription.detach()
            self._subscription = None
        if is_gone and self._consumer and not self.origin.is_durable:
            subject = self.origin.delete_subject(self._consumer)
            self._account.internal_client.publish(subject)
        self._consumer = ""

    def _stop_asking(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _chance(self) -> int:
        return int.from_bytes(self._random_bytes(4))

    # Setup of the consumer

    async def _set_up(self) -> None:
        try:
            await self._ask()
            self._fails, self._error = 0, None
            self._wake_in(HEALTH_NS)
        except OriginRefused as refused:
            self._failed(refused.error)
        except (NoRespondersError, TimeoutError):  # TimeoutError is an OSError, so it comes first
            self._failed(self._error)
        except (StoreError, OSError) as error:
            self._failed(self._setup_failed(str(error)))
        finally:
            if self._task is asyncio.current_task():
                self._task = None

    def _failed(self, error: ErrorBody | None) -> None:
        self._fails += 1
        if error is not None and error != self._error:
            self._sourcing.troubles.note(CANNOT_BE_FILLED, self.origin.name, error.description)
        self._error = error
        self._wake_in(retry_delay_ns(self._fails, self._chance()))

    def _setup_failed(self, text: str) -> ErrorBody:
        is_mirror = self.origin.is_mirror
        error_id = (
            ErrorId.JSMirrorConsumerSetupFailedErrF
            if is_mirror
            else ErrorId.JSSourceConsumerSetupFailedErrF
        )
        return ErrorBody.of(api_error(error_id, err=text))

    async def _ask(self) -> None:
        """Create or reset the consumer and subscribe to it.

        Raises OriginRefused, NoRespondersError, TimeoutError, StoreError.
        """
        async with self._sourcing.placing:
            position, start = await self._sourcing.start_of(self)
        async with self._stream.jetstream.asking_origins:
            await asyncio.sleep(0)
        deliver = self.origin.delivery_subject(short_hash(self._random_bytes(SUFFIX_BYTES)))
        if self.origin.is_durable:
            answer = await self._request(self.origin.reset_subject, b"", b"")
        else:
            answer = await self._create(start, deliver)
        self._check(answer)
        self._listen(answer, deliver, position)

    async def _create(self, start: OriginStart, deliver: str) -> OriginConsumer:
        request = self.origin.request(start, deliver)
        answer = await self._request(self.origin.create_subject(request), encode(request), _LEVEL)
        if answer.error is None or answer.error.err_code not in _OLD:
            return answer
        unique = short_hash(self._random_bytes(SUFFIX_BYTES))
        request = self.origin.request(start, deliver, name=f"{self.origin.stable_name}_{unique}")
        return await self._request(self.origin.create_subject(request), encode(request), b"")

    async def _request(self, subject: str, body: bytes, headers: bytes) -> OriginConsumer:
        client = self._account.internal_client
        data = await client.request(subject, body, timeout_s=RESPONSE_S, headers=headers)
        try:
            return decode(OriginConsumer, data, strict=False)
        except InvalidJson as error:
            raise OriginRefused(
                ErrorBody.of(api_error(ErrorId.JSInvalidJSONErr, err=error))
            ) from None

    def _check(self, answer: OriginConsumer) -> None:
        if answer.error is not None:
            raise OriginRefused(answer.error)
        if answer.config is None or not answer.name:
            raise OriginRefused(self._setup_failed("invalid consumer create response"))
        if self.origin.is_durable and answer.config.ack_policy != "flow_control":
            error_id = (
                ErrorId.JSMirrorConsumerRequiresAckFCErr
                if self.origin.is_mirror
                else ErrorId.JSSourceConsumerRequiresAckFCErr
            )
            raise OriginRefused(ErrorBody.of(api_error(error_id)))

    def _listen(self, answer: OriginConsumer, deliver: str, position: int) -> None:
        delivered = answer.delivered
        self._consumer = answer.name
        self.receiver.start(
            answer.name,
            max(position, delivered.stream_seq),
            delivered.consumer_seq,
            answer.num_pending,
        )
        self._is_placed = True
        self._sourcing.placed(self)
        self._began_at = self.receiver.sequence
        self._subscription = Subscription(deliver, sid=_SID, sink=self.receiver)
        self._account.sublist.insert(self._subscription)
        if self.receiver.has_caught_up:
            self._sourcing.caught_up(self)
