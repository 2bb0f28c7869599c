"""Reads the last message of each subject in a range: a key-value bucket as a table.

    multi_last ─▶ at most 1,024 subjects ─▶ rows
              └─▶ 413 ─▶ a consumer `last_per_subject` ─▶ rows, and subjects changed since `target`
                                                              └─▶ multi_last up_to_seq ─▶ rows

Promise
- The rows are, for each matching subject, the last message up to the range's last sequence, if it
  lies in the range. If the range ends with the stream or behind it, that is the last message of the
  subject.
- The rows are in the order of their sequences. The exceptions are subjects that changed behind the
  range before they were read, among more than 1,024 subjects: they come last.
- Each subject is yielded once. After a failure the read begins again if no row was yielded yet;
  otherwise the failure is raised, and Spark retries the task.

Source: ADR-31; nats-server's `getDirectMulti`.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from typing import Any, Final

import pyarrow as pa

from natsd.spark.errors import ClientError
from natsd.spark.network.direct_read import NOT_FOUND, raise_for
from natsd.spark.network.pull_read import PullReader
from natsd.spark.network.range_decoders import DirectDecoder
from natsd.spark.network.range_progress import Lagging, RangeProgress
from natsd.spark.ranges import NO_END
from natsd.spark.wire.client import ClientSubscription

TOO_MANY_RESULTS: Final = 413
NO_RESULTS: Final = "No Results"
SUBJECTS_MAX: Final = 1024
"""Maximum subjects of one request; nats-server refuses more with 413."""


class NotResumable(ClientError):
    """The read failed after some rows were yielded, so it cannot begin again."""


class LastReader:
    """Reader of all of `progress`; a new reader retries after a failure before the first row."""

    def __init__(self, progress: RangeProgress, *, direct: bool) -> None:
        self._progress = progress
        self._direct = direct
        self._is_given = False
        bounded = progress.request.last_sequence < progress.info.last
        self._upto = progress.target if bounded else NO_END

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the record batches. Raises ClientError, JetStreamApiError."""
        progress = self._progress
        try:
            for batch in self._batches():
                self._is_given = True
                yield batch
        except ClientError as error:
            if self._is_given:
                raise NotResumable(
                    f"{error}: the last messages cannot be read on from there"
                ) from error
            progress.batch = progress.new_batch()
            progress.last = progress.request.first_sequence - 1
            raise

    def _batches(self) -> Iterator[pa.RecordBatch]:
        progress = self._progress
        if not self._direct or ("data" not in progress.names and progress.info.is_kept):
            yield from self._by_consumer()
        elif (yield from self._ask(progress.request.subjects or (">",))):
            progress.verify_end()
        else:
            yield from self._by_consumer()
        if progress.batch.rows:
            yield progress.take(progress.batch)

    # Subjects that fit one direct get

    def _ask(self, subjects: tuple[str, ...]) -> Generator[pa.RecordBatch, None, bool]:
        """Read the last messages of the subjects; return False if the subjects are too many."""
        sequence: int | None = self._progress.request.first_sequence
        while sequence is not None:
            decoder, answers = self._request(subjects, sequence)
            yield from self._read(decoder)
            answers.unsubscribe()
            if decoder.status == TOO_MANY_RESULTS:
                return False
            sequence = self._after(decoder)
        return True

    def _read(self, decoder: DirectDecoder) -> Iterator[pa.RecordBatch]:
        """Yield batches until the request has ended with a status."""
        progress = self._progress
        while not decoder.status:
            progress.receive()
            progress.passed(decoder)
            if decoder.batch.is_full:
                yield progress.take(decoder.batch)

    def _after(self, decoder: DirectDecoder) -> int | None:
        """Return the first sequence of the next request; None: the read is complete.

        Raises Lagging, ClientError.
        """
        progress = self._progress
        if decoder.status == NOT_FOUND and NO_RESULTS in decoder.status_text():
            return None
        if decoder.status == NOT_FOUND:
            raise Lagging(
                f"{progress.client.server_address}: a last message was replaced while it was read"
            )
        raise_for(decoder, progress)
        more = decoder.status_header("Nats-Num-Pending") and decoder.frames
        return decoder.last + 1 if more else None

    def _request(
        self, subjects: tuple[str, ...], sequence: int
    ) -> tuple[DirectDecoder, ClientSubscription]:
        progress = self._progress
        client, request = progress.client, progress.request
        decoder = DirectDecoder(
            progress.batch, sequence - 1, self._upto, request.start_time_ns, request.end_time_ns
        )
        body: dict[str, Any] = {
            "multi_last": list(subjects),
            "seq": sequence,
            "batch": SUBJECTS_MAX,
            "max_bytes": max(progress.max_bytes, client.max_payload),
        }
        if self._upto != NO_END:
            body["up_to_seq"] = self._upto
        answers = client.subscribe(client.new_inbox(), decoder)
        subject = f"{client.options.api}.DIRECT.GET.{request.stream}"
        client.publish(subject, json.dumps(body).encode(), answers.subject)
        return decoder, answers

    # More subjects

    def _by_consumer(self) -> Iterator[pa.RecordBatch]:
        progress = self._progress
        pull = PullReader(progress)
        pull.decoder.upto = self._upto
        pull.keep_late()
        yield from pull.batches()
        subjects = pull.late_subjects
        for begin in range(0, len(subjects), SUBJECTS_MAX):
            if not self._direct:
                raise ClientError(
                    f"{progress.client.server_address}: the last messages as of sequence "
                    f"{self._upto} need a server from 2.11 on and a stream with allow_direct: "
                    "read up to the latest"
                )
            yield from self._ask(tuple(subjects[begin : begin + SUBJECTS_MAX]))
