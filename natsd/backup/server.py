"""Streams of a running server: snapshots and restores over its JetStream API.

    one account     $JS.API.STREAM.SNAPSHOT.<stream>           with the account's own credentials;
                                                               of nats-server, too
    all accounts    $SYS.REQ.ACCOUNT.<account>.JS.API.STREAM…  with those of the system account

Promise
- The server sends at most a window of chunks ahead; each chunk is acknowledged when it was read, so
  a slow disk here slows down the snapshot and nothing else.
- natsd is asked for the blocks that the directory lacks; nats-server sends the whole stream.
- Errors are one line with the server's words. A lost connection ends the backup: what was stored is
  not transferred again by the next one.

Source: nats-server's `jsStreamSnapshotRequest`, `jsStreamRestoreRequest`; ADR-1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from natsd.backup.collecting import Collector
from natsd.backup.composing import compose
from natsd.backup.configuration import jwts_of
from natsd.backup.directory import BackupDirectory
from natsd.backup.errors import AccountGone, BackupError, StreamFailed, StreamGone
from natsd.backup.manifest import Kind, StreamCopy, StreamRecord
from natsd.backup.source import Progress, Restored
from natsd.jetstream.snapshot.contents import PLAN
from natsd.spark.errors import ClientError, JetStreamApiError, NoResponders
from natsd.spark.wire.client import ClientSubscription, NatsClient, decode_answer
from natsd.spark.wire.connecting import ClientOptions
from natsd.spark.wire.frames import ReceivedMessage
from natsd.store.backup.snappy_frames import S2_IDENTIFIER
from natsd.store.backup.snapshot_file import SnapshotReader
from natsd.store.errors import DamagedEncoding, ForeignSnapshot

CHUNK_BYTES: Final = 512 << 10
WINDOW_BYTES: Final = 8 << 20
SILENCE_S: Final = 30.0
BUILT_PER_S: Final = 8 << 20
"""Bytes of a stream that a server builds in a second at least, once all of a snapshot has come."""
"""Seconds without a chunk, or without an answer to one, after which the server is given up."""
CHOICE_HEADER: Final = b"NATS/1.0\r\nNatsd-Choose-Blocks: 1\r\n\r\n"
COMPLETE: Final = 204
NOT_FOUND: Final = 10059
NO_MEMORY_SNAPSHOT: Final = "no impl"
NOT_ENABLED: Final = 10039
ACCOUNTS_AT_ONCE: Final = 1024


class ServerStreams:
    """The streams that a server shows to these credentials.

    `is_system` says that they are those of the system account, and all accounts are meant.
    """

    def __init__(self, options: ClientOptions, *, is_system: bool) -> None:
        """Connect. Raises BackupError."""
        self._is_system = is_system
        try:
            self._client = NatsClient(replace(options, name="natsd backup"))
        except (ClientError, ValueError, OSError) as error:
            raise BackupError(str(error)) from None
        self._options = options

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    @property
    def title(self) -> str:
        """Name and address of the server."""
        name = self._client.info.get("server_name", "")
        return f"server {name} at {self._client.server_address}"

    def jwts(self) -> list[tuple[str, bytes]]:
        """Return the JWTs of accounts that the server knows (configuration.py)."""
        try:
            return list(jwts_of(self._client))
        except ClientError as error:
            raise BackupError(str(error)) from None

    def damage(self) -> Iterator[str]:
        """Yield nothing: the server logs its damage."""
        yield from ()

    # Names

    def accounts(self) -> list[str]:
        """Return the accounts that JetStream serves; the name of the own account is empty."""
        if not self._is_system:
            return [""]
        subject = f"$SYS.REQ.SERVER.{self._client.info.get('server_id', '')}.JSZ"
        found: list[str] = []
        while True:
            body = {"accounts": True, "offset": len(found), "limit": ACCOUNTS_AT_ONCE}
            answer = self._ask(subject, body)
            data = answer.get("data") or {}
            names = [
                str(each.get("id") or each["name"]) for each in data.get("account_details", ())
            ]
            found += names
            if not names or len(found) >= int(data.get("total", 0)):
                return sorted(found)

    def _ask(self, subject: str, body: object) -> dict[str, Any]:
        try:
            answer = self._client.request(subject, json.dumps(body).encode(), timeout_s=SILENCE_S)
            found = json.loads(answer.data)
        except NoResponders:
            raise BackupError(
                f"{self.title}: the credentials are not those of natsd's system account"
            ) from None
        except ClientError as error:
            raise BackupError(str(error)) from None
        if not isinstance(found, dict) or "error" in found:
            raise BackupError(f"{self.title}: {found}")
        return found

    def streams(self, account: str) -> list[str]:
        """Return the names of the account's streams."""
        found: list[str] = []
        while True:
            try:
                answer = self._request(account, "STREAM.NAMES", {"offset": len(found)})
            except AccountGone:
                if self._is_system:
                    return []  # it lost JetStream meanwhile
                raise
            names = answer.get("streams") or []
            found += names
            if not names or len(found) >= int(answer.get("total", 0)):
                return sorted(found)

    def _api(self, account: str) -> str:
        """Return the prefix of an account's API."""
        if not self._is_system:
            return self._options.api
        token = quote(account, safe="$").replace(".", "%2E")
        return f"$SYS.REQ.ACCOUNT.{token}.JS.API"

    def _request(
        self, account: str, name: str, body: object, headers: bytes = b""
    ) -> dict[str, Any]:
        """Send an API request; return the answer. Raises StreamGone, StreamFailed, BackupError."""
        subject = f"{self._api(account)}.{name}"
        try:
            answer = self._client.request(
                subject, json.dumps(body).encode(), headers, timeout_s=SILENCE_S
            )
            return decode_answer(answer.data, name)
        except JetStreamApiError as error:
            if error.err_code == NOT_FOUND:
                raise StreamGone(str(error)) from None
            if error.err_code == NOT_ENABLED:
                raise AccountGone(str(error)) from None
            raise StreamFailed(str(error)) from None
        except ClientError as error:
            raise BackupError(str(error)) from None

    # Copies

    def copy(
        self, account: str, stream: str, collector: Collector, progress: Progress
    ) -> StreamCopy:
        """Receive a snapshot of the stream."""
        try:
            inbox = self._client.subscribe(self._client.new_inbox())
        except ClientError as error:
            raise BackupError(str(error)) from None
        body = {
            "deliver_subject": inbox.subject,
            "chunk_size": min(CHUNK_BYTES, self._client.max_payload),
            "window_size": WINDOW_BYTES,
        }
        try:
            try:
                answer = self._request(account, f"STREAM.SNAPSHOT.{stream}", body, CHOICE_HEADER)
            except StreamFailed as error:
                if NO_MEMORY_SNAPSHOT in str(error):
                    return self._copy_memory(account, stream, collector)
                raise
            config, state = answer.get("config"), answer.get("state") or {}
            _Receiving(self._client, inbox, collector, progress, int(state.get("bytes", 0))).run()
            return collector.finish(account, stream, config, state)
        finally:
            if self._client.is_connected:
                inbox.unsubscribe()

    def _copy_memory(self, account: str, stream: str, collector: Collector) -> StreamCopy:
        """Return the copy of a stream in memory: its configuration."""
        info = self._request(account, f"STREAM.INFO.{stream}", {})
        return collector.finish_memory(account, stream, info["config"])

    # Restores

    def restore(
        self,
        account: str,
        stream: str,
        record: StreamRecord,
        directory: BackupDirectory,
        size: int,
        progress: Progress,
        *,
        overwrites: bool,
    ) -> Restored:
        """Send the stream's snapshot; it is there as a whole, or not at all."""
        self._make_room(account, stream, overwrites=overwrites)
        config = json.loads(record.config)
        if record.kind is Kind.MEMORY:
            self._request(account, f"STREAM.CREATE.{stream}", config)
            return Restored(0, None, None)
        state = json.loads(record.state)
        body = {"config": config, "state": state}
        answer = self._request(account, f"STREAM.RESTORE.{stream}", body)
        subject = str(answer["deliver_subject"])
        chunk_bytes = min(CHUNK_BYTES, self._client.max_payload)
        done = 0
        for part in compose(directory, record):
            for at in range(0, len(part), chunk_bytes):
                self._send(stream, subject, part[at : at + chunk_bytes])
            done += len(part)
            progress(done, max(size, done))
        info = self._send(stream, subject, b"", SILENCE_S + done / BUILT_PER_S)
        found = info.get("state") or {}
        return Restored(
            int(found.get("messages", 0)),
            int(found.get("last_seq", 0)),
            int(found.get("consumer_count", 0)),
        )

    def _make_room(self, account: str, stream: str, *, overwrites: bool) -> None:
        """Delete the stream if it exists. Raises StreamFailed if that is not allowed."""
        try:
            self._request(account, f"STREAM.INFO.{stream}", {})
        except AccountGone as error:
            raise StreamFailed(str(error)) from None
        except StreamGone:
            return
        if not overwrites:
            raise StreamFailed("the stream exists; --overwrite replaces it")
        self._request(account, f"STREAM.DELETE.{stream}", {})

    def _send(
        self, stream: str, subject: str, chunk: bytes, timeout_s: float = SILENCE_S
    ) -> dict[str, Any]:
        """Send a chunk of a restore and return the answer, which is empty before the end."""
        try:
            answer = self._client.request(subject, chunk, timeout_s=timeout_s)
            return decode_answer(answer.data, f"STREAM.RESTORE.{stream}") if answer.data else {}
        except (JetStreamApiError, NoResponders) as error:
            raise StreamFailed(f"the server ended the restore: {error}") from None
        except ClientError as error:
            raise BackupError(str(error)) from None


class _Receiving:
    """A snapshot that is being received; call `run` once."""

    def __init__(
        self,
        client: NatsClient,
        inbox: ClientSubscription,
        collector: Collector,
        progress: Progress,
        size: int,
    ) -> None:
        self._client = client
        self._inbox = inbox
        self._collector = collector
        self._progress = progress
        self._size = size
        self._reader = SnapshotReader()
        self._is_foreign: bool | None = None  # None: nothing has come
        self._received_bytes = 0

    def run(self) -> None:
        """Receive all chunks. Raises StreamFailed, BackupError or OSError."""
        try:
            while True:
                message = self._inbox.next(SILENCE_S)
                if message is None:
                    raise StreamFailed(f"the server sent nothing for {SILENCE_S:g} seconds")
                if not message.data:
                    break
                if message.reply:
                    self._client.publish(message.reply)
                self._take(message)
        except ClientError as error:
            raise BackupError(str(error)) from None
        if message.status and message.status != COMPLETE:
            raise StreamFailed(f"the server ended the snapshot: {message.description}")
        if not self._is_foreign:
            self._finish()

    def _take(self, message: ReceivedMessage) -> None:
        if self._is_foreign is None:
            self._is_foreign = message.data.startswith(S2_IDENTIFIER)
        self._received_bytes += len(message.data)
        self._progress(self._received_bytes, max(self._size, self._received_bytes))
        if self._is_foreign:
            self._collector.take_raw(message.data)
            return
        try:
            entries = self._reader.feed(message.data)
        except (DamagedEncoding, ForeignSnapshot) as error:
            raise StreamFailed(str(error)) from None
        for name, body in entries:
            if name == PLAN:
                prefix = message.reply.rsplit(".", 2)[0]
                self._client.publish(f"{prefix}.CHOOSE", self._collector.choose(body))
            else:
                self._collector.take(name, body)

    def _finish(self) -> None:
        try:
            self._reader.finish()
        except DamagedEncoding as error:
            raise StreamFailed(str(error)) from None
