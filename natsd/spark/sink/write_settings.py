"""The options of `df.write.format("jetstream")` and `df.writeStream.format("jetstream")`.

As in options.py, names are camelCase, everything is checked before any request to a server, and
errors are one line.
"""

from __future__ import annotations

import re
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from natsd.spark.options import (
    ConnectionSettings,
    Count,
    DataSourceOptionsError,
    Seconds,
    is_stream_name,
)
from natsd.spark.sink.write_task import MAX_IN_FLIGHT, WriteOptions

BUCKET_NAME = re.compile(r"[A-Za-z0-9_-]+")


class WriteSettings(ConnectionSettings):
    """Options of batch and streaming writes; docs/spark.md describes each of them.

    `max_msgs_per_second` limits each task; `ack_timeout` is seconds.
    """

    stream: str | None = None
    txn_app_id: str | None = Field(None, min_length=1, max_length=200)
    txn_version: int | None = Field(None, ge=0)
    max_in_flight: Count = MAX_IN_FLIGHT
    max_msgs_per_second: float | None = Field(None, gt=0)
    ack_timeout: Seconds = 30.0
    state_bucket: str = "natsd_spark"
    query_name: str | None = None
    """Set by Spark (`writeStream.queryName`); not used here."""
    checkpoint_location: str | None = None
    """Set by Spark; not used here."""

    @field_validator("txn_app_id")
    @classmethod
    def check_txn_app_id(cls, value: str | None) -> str | None:
        """Check the name of the application. Raises ValueError."""
        if value is not None and (value != value.strip() or not value.isprintable()):
            raise ValueError("must be printable, and not begin or end with a space")
        return value

    @field_validator("max_in_flight")
    @classmethod
    def check_max_in_flight(cls, value: int) -> int:
        """Check the upper limit of the messages in flight. Raises ValueError."""
        if value > 1 << 20:
            raise ValueError("may be 1048576 at most")
        return value

    @model_validator(mode="after")
    def check_writing(self) -> Self:
        """Check names and the combination of transaction options. Raises ValueError."""
        if self.stream is not None and not is_stream_name(self.stream):
            raise ValueError(f'"{self.stream}" is no name of a stream')
        if not BUCKET_NAME.fullmatch(self.state_bucket):
            raise ValueError(f'"{self.state_bucket}" is no name of a bucket')
        if (self.txn_app_id is None) != (self.txn_version is None):
            raise ValueError("txnAppId and txnVersion belong together: give both, or neither")
        return self

    def for_batch(self) -> WriteOptions:
        """Return the options of a batch write."""
        return self._options(application=self.txn_app_id, version=self.txn_version)

    def for_stream(self) -> WriteOptions:
        """Return the options of a streaming write. Raises DataSourceOptionsError."""
        if self.txn_app_id is not None:
            raise DataSourceOptionsError(
                'options "txnAppId" and "txnVersion" are for batch writes: a streaming query has '
                "its own id and batches"
            )
        return self._options()

    def _options(self, **more: Any) -> WriteOptions:
        return WriteOptions(
            connect=self.connect,
            stream=self.stream,
            max_in_flight=self.max_in_flight,
            rate=self.max_msgs_per_second,
            ack_timeout_s=self.ack_timeout,
            state_bucket=self.state_bucket,
            **more,
        )
