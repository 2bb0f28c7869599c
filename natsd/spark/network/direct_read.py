"""Reads a range by batched direct gets; a request is sent before the previous one has ended.

    ask 1 ──▶ rows … … … ask 2 ──▶ … … last row of 1, EOB │ rows of 2 … … ask 3 ──▶ …
                          └ begins at the sequence that 1 reaches at least

Promise
- At most two requests are pending, each of at most REQUEST_ROWS messages and about `max_bytes`;
  rows of the second that arrive before the first has ended are kept until then.
- The second request begins behind the sequence that the first one is sure to reach (it advances
  by at least one for each message that it has yet to send); its rows count from there. If the
  first one ends earlier, the second is dropped and sent again.

Source: ADR-31; nats-server's `getDirectRequest`.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from natsd.spark.errors import ClientError, NoResponders
from natsd.spark.network.range_decoders import DirectDecoder
from natsd.spark.network.range_progress import Lagging, RangeProgress
from natsd.spark.wire.client import ClientSubscription

REQUEST_ROWS: Final = 50_000
REQUEST_ROWS_MIN: Final = 64
ADDED_BYTES: Final = 200
"""Bytes of the headers that a server adds to each message, estimated."""
AHEAD: Final = 4
"""One part in AHEAD of a request is still pending when the next request is sent."""
SPARSE_AHEAD: Final = 32
"""As AHEAD, for ranges in which many sequences are missing.

There the pending part of a request reaches far beyond the first sequence of the next request, which
repeats most of its rows.
"""
DRAINING_MAX: Final = 4

EOB = 204
NOT_FOUND = 404
NO_RESPONDERS = 503
TOO_MANY_REQUESTS = 429


class PendingRequest:
    """A pending request and its received rows."""

    def __init__(self, decoder: DirectDecoder, answers: ClientSubscription, rows: int) -> None:
        self.decoder = decoder
        self.answers = answers
        self.rows = rows
        self.begin = decoder.last + 1
        self.ready: deque[pa.RecordBatch] = deque()

    @property
    def is_sparse(self) -> bool:
        """Whether at least a quarter of the sequences are missing."""
        return 4 * self.decoder.frames < 3 * (self.decoder.last - self.begin + 1)

    @property
    def left(self) -> int:
        """Maximum number of messages that the request has yet to send."""
        return self.rows - self.decoder.frames


class DirectReader:
    """Reader of the rest of `progress`; each retry uses a new one."""

    def __init__(self, progress: RangeProgress) -> None:
        self._progress = progress
        self._draining: list[PendingRequest] = []
        self._row_bytes = progress.info.message_bytes
        self._spare = progress.new_batch()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the record batches. Raises ClientError, DataLoss."""
        progress = self._progress
        self._current = self._ask(progress.last + 1)
        try:
            yield from self._read()
        finally:
            progress.leave(self._current.decoder)
        progress.wait_for_gaps()

    def _read(self) -> Iterator[pa.RecordBatch]:
        progress = self._progress
        following: PendingRequest | None = None
        while True:
            current = self._current
            progress.passed(current.decoder)
            if current.decoder.batch.is_full:
                yield progress.take(current.decoder.batch)
            if following is not None and following.decoder.batch.is_full:
                following.ready.append(progress.take(following.decoder.batch))
            if following is None:
                following = self._ask_ahead(current)
            if not current.decoder.is_complete and not current.decoder.status:
                self._receive()
                continue
            after = self._after(current, following)
            following = None
            progress.check_gaps(current.decoder)
            if after is None:
                return
            yield from self._switch(after)

    def _receive(self) -> None:
        decoder = self._progress.receive()
        for pending in self._draining:
            if pending.decoder is decoder and pending.decoder.status:
                pending.answers.unsubscribe()
                self._draining.remove(pending)
                return

    # Requests

    def _ask(self, sequence: int) -> PendingRequest:
        progress = self._progress
        client, request = progress.client, progress.request
        rows = max(REQUEST_ROWS_MIN, progress.max_bytes // (self._row_bytes + ADDED_BYTES))
        rows = min(rows, REQUEST_ROWS, progress.target - sequence + 1)
        decoder = DirectDecoder(
            progress.batch,
            sequence - 1,
            progress.target,
            request.start_time_ns,
            request.end_time_ns,
        )
        decoder.stop_at_frames = rows - rows // AHEAD
        body = {
            "seq": sequence,
            "batch": rows,
            "max_bytes": max(progress.max_bytes, client.max_payload),
            "next_by_subj": progress.subjects[0],
        }
        return PendingRequest(decoder, self._send(body, decoder), rows)

    def _send(self, body: dict[str, Any], decoder: DirectDecoder) -> ClientSubscription:
        client = self._progress.client
        subject = f"{client.options.api}.DIRECT.GET.{self._progress.request.stream}"
        answers = client.subscribe(client.new_inbox(), decoder)
        client.publish(subject, json.dumps(body).encode(), answers.subject)
        return answers

    def _ask_ahead(self, current: PendingRequest) -> PendingRequest | None:
        """Send the next request once its first sequence is known; None: not yet, or not needed."""
        decoder = current.decoder
        if decoder.frames < decoder.stop_at_frames or decoder.status or current.left == 0:
            return None
        if current.is_sparse and current.left > current.rows // SPARSE_AHEAD:
            decoder.stop_at_frames = current.rows - current.rows // SPARSE_AHEAD
            return None
        begin = decoder.last + current.left + 1
        if begin > self._progress.target or len(self._draining) == DRAINING_MAX:
            return None
        self._row_bytes = decoder.row_bytes // decoder.frames
        decoder.upto = begin - 1
        following = self._ask(begin)
        following.decoder.batch = self._spare
        return following

    # Ends of requests

    def _after(
        self, ended: PendingRequest, following: PendingRequest | None
    ) -> PendingRequest | None:
        """Return the request behind one that has ended; None: the range is read."""
        progress = self._progress
        if ended.decoder.status:
            ended.answers.unsubscribe()
        else:
            ended.decoder.is_over = True
            self._draining.append(ended)
        if ended.decoder.is_complete:
            return following
        if following is not None:
            self._drop(following)
        if self._ended_early(ended):
            return self._ask(progress.last + 1)
        progress.verify_end()
        return None

    def _ended_early(self, ended: PendingRequest) -> bool:
        """Return whether messages follow the request's end. Raises its status if it is an error."""
        decoder = ended.decoder
        if decoder.status == NOT_FOUND:
            return False
        raise_for(decoder, self._progress)
        if decoder.status_header("Nats-Num-Pending") == 0:
            return False
        if decoder.frames == 0:
            raise Lagging(
                f"{self._progress.client.server_address}: a direct get was answered with nothing"
            )
        self._row_bytes = max(decoder.row_bytes // decoder.frames, self._row_bytes)
        return True

    def _drop(self, pending: PendingRequest) -> None:
        """Drop a request whose rows begin too far ahead."""
        pending.decoder.is_over = True
        pending.ready.clear()
        if self._spare.rows:
            self._spare = self._progress.new_batch()
        pending.answers.unsubscribe()

    def _switch(self, current: PendingRequest) -> Iterator[pa.RecordBatch]:
        """Make the request the current one, and yield its completed batches.

        Its rows go on in the old batch if it has none yet.
        """
        progress = self._progress
        if current.decoder.batch is not progress.batch:
            if current.ready or current.decoder.batch.rows:
                if progress.batch.rows:
                    yield progress.take(progress.batch)
                progress.batch, self._spare = current.decoder.batch, progress.batch
            else:
                current.decoder.batch = progress.batch
        self._current = current
        while current.ready:
            yield current.ready.popleft()


def raise_for(decoder: DirectDecoder, progress: RangeProgress) -> None:
    """Raise the error of a status other than EOB. Raises NoResponders, Lagging, ClientError."""
    stream, server = progress.request.stream, progress.client.server_address
    if decoder.status == NO_RESPONDERS:
        raise NoResponders(f'{server}: nobody answers direct gets of stream "{stream}"')
    if decoder.status == TOO_MANY_REQUESTS:
        raise Lagging(f'{server}: stream "{stream}": {decoder.status_text()}')
    if decoder.status != EOB:
        raise ClientError(f'{server}: direct get of stream "{stream}": {decoder.status_text()}')
