"""Reads a range by a temporary pull consumer, in memory and without acknowledgements.

    create ─▶ pull, pull ─▶ deliveries, in order … pull … ─▶ end ─▶ delete

Promise
- Deliveries are accepted only in order: a missing delivery, a deleted consumer, or a changed leader
  raises ConsumerGone, and a new consumer begins behind the last row.
- At most PULL_ROWS deliveries and about twice `max_bytes` are pending, in two pull requests.
- If `data` is not a chosen column, payloads stay on the server.

Source: ADR-17 (ordered consumer), ADR-13 (pull); nats-server's `processNextMsgRequest`.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from natsd.spark.errors import ClientError
from natsd.spark.network.range_decoders import PullDecoder
from natsd.spark.network.range_progress import RangeProgress
from natsd.spark.rows.arrow import BatchWrapper
from natsd.spark.rows.message_batch import MessageBatch
from natsd.spark.wire.client import ClientSubscription

PULL_ROWS: Final = 20_000
PULL_ROWS_MIN: Final = 64
SEVERAL_FILTERS: Final = (2, 10)
SECOND_NS: Final = 1_000_000_000
DELETE_S: Final = 1.0
"""Maximum wait, in seconds, for the deletion of the consumer."""
INACTIVE_NS: Final = 60 * SECOND_NS

NO_MESSAGES = 404
REQUEST_TIMEOUT = 408
CONFLICT = 409
TOO_MANY_ROWS: Final = "Exceeded MaxRequestBatch of "


class ConsumerGone(ClientError):
    """The consumer no longer exists or missed a delivery; a new one can continue."""


class PullReader:
    """Reader of the rest of `progress`; each retry uses a new one."""

    def __init__(self, progress: RangeProgress) -> None:
        self._progress = progress
        self._stream = progress.request.stream
        self._name = f"natsd_spark_{secrets.token_hex(8)}"
        self._rows = max(
            PULL_ROWS_MIN, min(PULL_ROWS, progress.max_bytes // (progress.info.message_bytes + 1))
        )
        self._asked = 0
        request = progress.request
        self.decoder = PullDecoder(
            progress.batch,
            progress.last,
            progress.target,
            request.start_time_ns,
            request.end_time_ns,
        )
        self.decoder.is_bare = "data" not in progress.names
        self.late_subjects: list[str] = []
        self._answers: ClientSubscription

    def keep_late(self) -> None:
        """Collect the subjects of messages behind the decoder's `upto` in `late_subjects`."""
        self.decoder.late = MessageBatch(["subject"], PULL_ROWS)
        self._late_wrapper = BatchWrapper(["subject"])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the record batches. Raises ClientError, JetStreamApiError, DataLoss."""
        progress, decoder = self._progress, self.decoder
        waiting = self._create()
        self._answers = progress.client.subscribe(progress.client.new_inbox(), decoder)
        try:
            while waiting and not decoder.is_complete:
                self._pull()
                progress.receive()
                progress.passed(decoder)
                if decoder.batch.is_full:
                    yield progress.take(decoder.batch)
                self._take_late()
                self._look_at_status()
                waiting = decoder.pending != 0
            progress.check_gaps(decoder)
        finally:
            progress.leave(decoder)
            self._delete()
        if not decoder.is_complete:
            progress.verify_end()
        progress.wait_for_gaps()

    def _take_late(self) -> None:
        late = self.decoder.late
        if late is not None and late.rows and (late.is_full or self.decoder.pending == 0):
            self.late_subjects += self._late_wrapper.take(late).column(0).to_pylist()

    # The consumer

    def _create(self) -> bool:
        """Create the consumer; return whether it has messages.

        Raises JetStreamApiError, ClientError.
        """
        subject = f"CONSUMER.CREATE.{self._stream}.{self._name}"
        body = {"stream_name": self._stream, "config": self._config(), "action": "create"}
        answer = self._progress.client.api(subject, body)
        return bool(answer.get("num_pending", 1))

    def _config(self) -> dict[str, Any]:
        progress = self._progress
        subjects = progress.request.subjects
        if len(subjects) > 1 and progress.info.server_version < SEVERAL_FILTERS:
            raise ClientError(
                f"{progress.client.server_address}: several subjects at once need a "
                "server from 2.10 on"
            )
        config: dict[str, Any] = {
            "name": self._name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": progress.last + 1,
            "ack_policy": "none",
            "max_deliver": 1,
            "replay_policy": "instant",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": INACTIVE_NS,
        }
        if progress.request.last_per_subject:
            config["deliver_policy"] = "last_per_subject"
            del config["opt_start_seq"]
        if len(subjects) > 1:
            config["filter_subjects"] = list(subjects)
        elif subjects or progress.request.last_per_subject:
            config["filter_subject"] = progress.subjects[0]
        if self.decoder.is_bare:
            config["headers_only"] = True
        return config

    def _delete(self) -> None:
        """Delete the consumer and ignore errors: the server removes it after an idle minute."""
        client = self._progress.client
        self.decoder.is_over = True
        if client.is_connected:
            with contextlib.suppress(ClientError):
                self._answers.unsubscribe()
                subject = f"CONSUMER.DELETE.{self._stream}.{self._name}"
                client.api(subject, timeout_s=DELETE_S)

    # Pulls

    def _pull(self) -> None:
        """Send a pull request when at most half of the requested deliveries are pending."""
        decoder, progress = self.decoder, self._progress
        if self._asked - decoder.frames > self._rows // 2:
            return
        client = progress.client
        progress.check_gaps(decoder)
        if decoder.frames:
            row_bytes = decoder.row_bytes // decoder.frames + 1
            self._rows = max(PULL_ROWS_MIN, min(self._rows, progress.max_bytes // row_bytes))
        if not progress.request.last_per_subject:
            self._rows = max(1, min(self._rows, progress.target - progress.last))
        timeout_ns = int(client.options.request_timeout_s * SECOND_NS)
        body = {
            "batch": self._rows,
            "max_bytes": max(progress.max_bytes, 2 * client.max_payload),
            "expires": 4 * timeout_ns,
            "idle_heartbeat": timeout_ns // 2,
        }
        client.publish(
            f"{client.options.api}.CONSUMER.MSG.NEXT.{self._stream}.{self._name}",
            json.dumps(body).encode(),
            self._answers.subject,
        )
        self._asked = max(self._asked, decoder.frames) + self._rows
        decoder.stop_at_frames = self._asked - self._rows // 2

    def _look_at_status(self) -> None:
        """Handle the status of a pull request that ended early. Raises ConsumerGone."""
        decoder = self.decoder
        if decoder.is_out_of_order:
            raise ConsumerGone(f"{self._progress.client.server_address}: a delivery is missing")
        if not decoder.status:
            return
        text = decoder.status_text()
        left = decoder.status_header("Nats-Pending-Messages")
        if decoder.status not in (NO_MESSAGES, REQUEST_TIMEOUT, CONFLICT):
            raise ConsumerGone(f"{self._progress.client.server_address}: {text}")
        if TOO_MANY_ROWS in text:
            most = text.partition(TOO_MANY_ROWS)[2]
            self._rows = int(most) if most.isdigit() and int(most) else 1
            self._asked = decoder.frames
        elif left is None:
            raise ConsumerGone(f"{self._progress.client.server_address}: {text}")
        else:
            self._asked = max(self._asked - left, decoder.frames)
        decoder.forget_status()
