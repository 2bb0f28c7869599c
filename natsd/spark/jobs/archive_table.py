"""A table of stream messages in Parquet files, in which each message is once.

    <root>/day=2026-11-21/region=eu/000000000012-00000.parquet
           _natsd/…                     the log (table_log.py) and the query's checkpoint

    table = ArchiveTable.create(spark, root, source={"stream": "ORDERS"}, columns=…, tokens={})
    table.append(dataframe)             all of it or nothing
    table.compact()                     many small files → a few large ones
    table.read()                        a DataFrame of the log's state at one instant

Promise
- A sequence that is in the table is not added again: the batch given to `append` may overlap with
  the table, as after a crash. Messages of a stream are added in order: a message that is not beyond
  the table's last one is left out.
- `read` sees a change as a whole once it is in the log. A reader of the directory itself may see
  part of a change until its job, or the next one, has finished it; afterwards it sees each message
  once.
- The remains of Spark's failed attempts are in `_natsd/staging`, which Parquet readers skip because
  of the underscore.
"""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from natsd.spark.jobs.errors import JobError
from natsd.spark.jobs.table_files import TableFiles
from natsd.spark.jobs.table_log import (
    DIRECTORY,
    AddedFile,
    StreamRange,
    TableChange,
    TableLog,
    TableState,
    joined,
    ranges_of,
)
from natsd.version import VERSION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

DESCRIPTION: Final = f"{DIRECTORY}/table.json"
CHECKPOINT: Final = f"{DIRECTORY}/checkpoint"
STAGING: Final = f"{DIRECTORY}/staging"
DAY: Final = "day"
TARGET_FILE_BYTES: Final = 128 << 20
SMALL_FILES_MIN: Final = 4
"""Minimum number of neighbouring small files that are compacted into one."""
FORMAT_VERSION: Final = 1
_SUFFIX: Final = ".parquet"
_NS_PER_DAY: Final = 86_400 * 10**9


class Description(msgspec.Struct, frozen=True):
    """Description of a table.

    `source` holds the options that identify the streams; `servers` are those of the first messages;
    `columns` is Spark DDL; `tokens` maps partition columns to subject tokens, counted from 1.
    """

    source: dict[str, str]
    servers: str
    columns: str
    tokens: dict[str, int]
    created_at: str
    created_by: str
    format: str = "natsd archive"
    version: int = FORMAT_VERSION


class ArchiveTable:
    """One table, open for reading and for one writing job."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        """Open a table. Raises JobError if there is none, or it cannot be read."""
        self._spark = spark
        self._files = TableFiles(spark, root)
        self.description = self._describe()
        self._log = TableLog(self._files)
        self.added: dict[str, StreamRange] = {}
        """Messages that `append` has added, by stream."""

    @classmethod
    def create(
        cls,
        spark: SparkSession,
        root: str,
        *,
        source: Mapping[str, str],
        servers: str = "",
        columns: str,
        tokens: Mapping[str, int],
    ) -> Self:
        """Open the table in `root`, and create it if it does not exist.

        `columns` is DDL; `tokens` names the subject tokens (from 1) by which files are partitioned
        below the day. A table to which nothing was ever added, for example after a command with a
        mistake, is created anew. Raises JobError if the table has another source or other
        partitions.
        """
        files = TableFiles(spark, root)
        if files.exists(DESCRIPTION):
            known = cls(spark, root)
            if not known.state.number and not known.is_of(source, tokens):
                for path in (CHECKPOINT, STAGING, DESCRIPTION):
                    files.remove(path)
        if not files.exists(DESCRIPTION):
            if any(not name.startswith((".", "_")) for name in files.names("")):
                raise JobError(
                    f"{files.root}: there are files that no archive made; choose another"
                )
            described = Description(
                dict(source), servers, columns, dict(tokens), _now(), f"natsd {VERSION}"
            )
            files.create(DESCRIPTION, msgspec.json.encode(described))
        table = cls(spark, root)
        table.check(source, tokens)
        table.finish()
        return table

    @property
    def root(self) -> str:
        """Path of the table with its scheme."""
        return self._files.root

    @property
    def state(self) -> TableState:
        """State of the table: files, streams, and the unfinished change."""
        return self._log.state

    @property
    def checkpoint(self) -> str:
        """Path of the checkpoint of the query that fills the table."""
        return self._files.absolute(CHECKPOINT)

    @property
    def has_checkpoint(self) -> bool:
        """Whether a query has filled the table before."""
        return self._files.exists(CHECKPOINT)

    @property
    def partitions(self) -> tuple[str, ...]:
        """Names of the partition columns."""
        return (DAY, *self.description.tokens)

    def is_of(self, source: Mapping[str, str], tokens: Mapping[str, int]) -> bool:
        """Return whether the table has this source and these partitions."""
        known = self.description
        return known.source == dict(source) and known.tokens == dict(tokens)

    def check(self, source: Mapping[str, str], tokens: Mapping[str, int]) -> None:
        """Raise JobError unless the table has this source and these partitions."""
        if self.description.source != dict(source):
            raise JobError(
                f"{self.root}: the table is of {_shown(self.description.source)}, not of "
                f"{_shown(source)}; archive that into another directory"
            )
        if self.description.tokens != dict(tokens):
            raise JobError(
                f"{self.root}: the table is partitioned by {', '.join(self.partitions)}; "
                "that cannot be changed, archive into another directory"
            )

    def read(self) -> DataFrame:
        """Return all messages of the table, with the partitions as columns."""
        tokens = "".join(f", `{name}` STRING" for name in self.description.tokens)
        schema = f"{self.description.columns}, {DAY} DATE{tokens}"
        paths = [self._files.absolute(path) for path in self._readable()]
        if not paths:
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).option("basePath", self.root).parquet(*paths)

    def append(self, batch: DataFrame) -> None:
        """Add the messages that the table does not have."""
        number = self.state.number + 1
        staging = _new_staging(number)
        new = self._partitioned(self._without_known(batch))
        new.write.partitionBy(*self.partitions).parquet(self._files.absolute(staging))
        staged = self._staged(number, staging)
        streams = self._ranges([added.staged for added in staged])
        if streams:
            self._log.append(TableChange(number, _now(), staged, streams=streams))
        for name, added in streams.items():
            self.added[name] = joined(self.added.get(name), added)
        self.finish()

    def compact(
        self, target_bytes: int = TARGET_FILE_BYTES, files_min: int = SMALL_FILES_MIN
    ) -> int:
        """Compact neighbouring small files; return how many files were replaced."""
        groups = small_files(self.state.files, target_bytes, files_min)
        for group in groups:
            self._rewrite(group)
        return sum(map(len, groups))

    def finish(self) -> None:
        """Finish the last change: move its files to their paths, and remove unused files."""
        change = self.state.unfinished
        if change is not None:
            for path in change.removed:
                self._files.remove(path)
            for added in change.added:
                self._files.move(added.staged, added.path)
            self.state.unfinished = None
        self._files.remove(STAGING)

    def recover(self) -> None:
        """Finish a change that was interrupted: the log may have it, and this object not."""
        self._log = TableLog(self._files)
        self.finish()

    def _readable(self) -> list[str]:
        """Return the paths of all files; for unmoved ones of the last change, the staging paths."""
        change = self.state.unfinished
        staged = {added.path: added.staged for added in change.added} if change else {}
        return [
            staged[path] if path in staged and not self._files.exists(path) else path
            for path in self.state.files
        ]

    def _rewrite(self, group: Sequence[str]) -> None:
        number = self.state.number + 1
        staging = _new_staging(number)
        paths = [self._files.absolute(path) for path in group]
        rows = self._spark.read.schema(self.description.columns).parquet(*paths)
        one = rows.coalesce(1).sortWithinPartitions("stream", "seq")
        one.write.parquet(self._files.absolute(staging))
        directory = group[0].rpartition("/")[0]
        staged = self._staged(number, staging, directory)
        if self._ranges([added.staged for added in staged]) != self._ranges(group):
            raise JobError(f"{self._files.absolute(directory)}: other rows came back than went in")
        self._log.append(TableChange(number, _now(), staged, removed=list(group)))
        self.finish()

    def _staged(self, number: int, staging: str, directory: str | None = None) -> list[AddedFile]:
        """Return the files below a staging directory with their final paths.

        `directory` is their common directory; None: that of their partition.
        """
        found = sorted(
            (file for file in self._files.below(staging) if file.path.endswith(_SUFFIX)),
            key=lambda file: file.path,
        )
        added = []
        for index, file in enumerate(found):
            below = file.path.removeprefix(staging + "/").rpartition("/")[0]
            path = f"{below if directory is None else directory}/{number:012}-{index:05}{_SUFFIX}"
            added.append(AddedFile(path, file.path, file.size_bytes))
        return added

    def _without_known(self, batch: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        known = [
            (F.col("stream") == name) & (F.col("seq") <= held.last)
            for name, held in self.state.streams.items()
        ]
        return batch.where(~reduce(or_, known)) if known else batch

    def _partitioned(self, rows: DataFrame) -> DataFrame:
        """Add the partition columns, and sort the rows so that those of one file are adjacent."""
        from pyspark.sql import functions as F

        tokens: dict[str, Column] = {
            name: F.get(F.split("subject", r"\."), F.lit(token - 1))
            for name, token in self.description.tokens.items()
        }
        day = F.expr(f"date_from_unix_date(cast(floor(time_ns / {_NS_PER_DAY}) as int))")
        rows = rows.withColumns({DAY: day, **tokens})
        if tokens:
            rows = rows.repartition(*self.partitions)
        return rows.sortWithinPartitions(*self.partitions, "stream", "seq")

    def _ranges(self, paths: Sequence[str]) -> dict[str, StreamRange]:
        from pyspark.sql import functions as F

        if not paths:
            return {}
        rows = self._spark.read.schema(self.description.columns).parquet(
            *map(self._files.absolute, paths)
        )
        found = rows.groupBy("stream").agg(F.min("seq"), F.max("seq"), F.count("seq"))
        return ranges_of(tuple(row) for row in found.collect())

    def _describe(self) -> Description:
        if not self._files.exists(DESCRIPTION):
            raise JobError(f"{self._files.root}: there is no archive here")
        try:
            described = msgspec.json.decode(self._files.read(DESCRIPTION), type=Description)
        except msgspec.DecodeError as error:
            where = self._files.absolute(DESCRIPTION)
            raise JobError(f"{where}: it is damaged: {error}") from None
        if described.version != FORMAT_VERSION:
            raise JobError(f"{self._files.root}: its format is of a natsd newer than this one")
        return described


def small_files(files: Mapping[str, int], target_bytes: int, files_min: int) -> list[list[str]]:
    """Return groups of neighbouring files in one directory that are worth compacting.

    A group has at least `files_min` files and at most `target_bytes` together; each file has at
    most half of that. `files` maps paths to bytes.
    """
    groups: list[list[str]] = []
    group: list[str] = []
    size = 0
    for path in sorted(files):
        is_next = bool(group) and path.rpartition("/")[0] == group[0].rpartition("/")[0]
        is_small = files[path] * 2 <= target_bytes
        if not is_next or not is_small or size + files[path] > target_bytes:
            groups.append(group)
            group, size = [], 0
        if is_small:
            group.append(path)
            size += files[path]
    return [group for group in (*groups, group) if len(group) >= max(2, files_min)]


def _new_staging(number: int) -> str:
    """Return a new staging path: a killed attempt may still write to the old one for a while."""
    return f"{STAGING}/{number:012}-{secrets.token_hex(4)}"


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")


def _shown(source: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in source.items())
