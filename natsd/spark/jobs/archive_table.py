"""A table of stream messages, in which each message is once: Parquet files and a Delta Lake log.

    <root>/day=2026-11-21/region=eu/part-….parquet
           _delta_log/…                 Delta's log (delta_log.py)
           _natsd/checkpoint, staging   of the query that fills the table, and of Spark's attempts

    table = ArchiveTable.create(spark, root, source={"stream": "ORDERS"}, columns=…, tokens={})
    table.append(dataframe)             all of it or nothing
    table.compact()                     many small files → a few large ones
    table.read()                        a DataFrame of the table's current version

Promise
- A sequence that is in the table is not added again: the batch given to `append` may overlap with
  the table, as after a crash. Messages of a stream are added in order: a message that is not beyond
  the table's last one is left out.
- Executors write the files, with Spark's Parquet writer; the driver commits them. On a local disk
  the files are synced before the commit, and the commit before `append` returns.
- The remains of Spark's failed attempts are in `_natsd/staging`, which all readers skip because of
  the underscore.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import unquote

from natsd.spark.jobs.delta_log import DIRECTORY, DataFile, DeltaLog, StreamRange, has_log
from natsd.spark.jobs.errors import JobError
from natsd.spark.jobs.table_files import TableFiles

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType

CHECKPOINT: Final = "_natsd/checkpoint"
STAGING: Final = "_natsd/staging"
DAY: Final = "day"
TARGET_FILE_BYTES: Final = 128 << 20
SMALL_FILES_MIN: Final = 4
"""Minimum number of small files in a directory that are compacted."""
KEEP_HOURS: Final = 168
"""Hours for which replaced files are kept."""
_SOURCE: Final = "natsd.source"
_TOKENS: Final = "natsd.tokens"
_ESCAPED_UTF8: Final = re.compile("%[89A-Fa-f][0-9A-Fa-f]")
_NS_PER_DAY: Final = 86_400 * 10**9
_MEASURED: Final = ("stream", "seq", "time_ns")
"""Columns whose smallest and largest values are in the log, so that readers can skip files."""


class ArchiveTable:
    """One table, open for reading and for one writing job."""

    def __init__(
        self, spark: SparkSession, root: str, storage: Mapping[str, str] | None = None
    ) -> None:
        """Open a table. Raises JobError if there is none, or it cannot be read.

        `storage` holds options of the table's file system, as the package deltalake names them.
        """
        self._spark = spark
        self._files = TableFiles(spark, root)
        if not has_log(self.root, storage or {}):
            raise JobError(f"{self.root}: there is no archive here")
        self.log = DeltaLog(self.root, storage or {})
        self.added: dict[str, StreamRange] = {}
        """Messages that `append` has added, by stream."""

    @classmethod
    def create(
        cls,
        spark: SparkSession,
        root: str,
        *,
        source: Mapping[str, str],
        columns: str,
        tokens: Mapping[str, int],
        storage: Mapping[str, str] | None = None,
        keep_hours: int = KEEP_HOURS,
    ) -> Self:
        """Open the table in `root` for writing, and create it if it does not exist.

        `source` holds the options that identify the streams. `columns` is DDL; columns that the
        table does not have are added to it. `tokens` names the subject tokens (from 1) by which
        files are partitioned below the day. Files that were replaced, or left by a killed job, are
        removed after `keep_hours`. A table to which nothing was ever added, for example after a
        command with a mistake, is created anew. Raises JobError if the table has another source or
        other partitions.
        """
        files = TableFiles(spark, root)
        schema = _schema_of(
            f"{columns}, {DAY} DATE{''.join(f', `{name}` STRING' for name in tokens)}"
        )
        if has_log(files.root, storage or {}):
            known = cls(spark, root, storage)
            if not known.log.streams and known.identity != (dict(source), dict(tokens)):
                for path in (CHECKPOINT, STAGING, DIRECTORY):
                    files.remove(path)
        if not has_log(files.root, storage or {}):
            if any(not name.startswith((".", "_")) for name in files.names("")):
                raise JobError(
                    f"{files.root}: there are files that no archive made; choose another"
                )
            properties = {_SOURCE: json.dumps(dict(source)), _TOKENS: json.dumps(dict(tokens))}
            DeltaLog.create(files.root, schema, (DAY, *tokens), properties, storage or {})
        table = cls(spark, root, storage)
        table.check(source, tokens)
        table.begin(schema, keep_hours)
        return table

    @property
    def root(self) -> str:
        """Path of the table with its scheme."""
        return self._files.root

    @property
    def checkpoint(self) -> str:
        """Path of the checkpoint of the query that fills the table."""
        return self._files.absolute(CHECKPOINT)

    @property
    def has_checkpoint(self) -> bool:
        """Whether a query has filled the table before."""
        return self._files.exists(CHECKPOINT)

    @property
    def identity(self) -> tuple[dict[str, str], dict[str, int]]:
        """The source, and the tokens of the partitions. Raises JobError if no archive made it."""
        properties = self.log.properties
        if _SOURCE not in properties or _TOKENS not in properties:
            raise JobError(f"{self.root}: no archive made this table; choose another directory")
        return json.loads(properties[_SOURCE]), json.loads(properties[_TOKENS])

    def check(self, source: Mapping[str, str], tokens: Mapping[str, int]) -> None:
        """Raise JobError unless the table has this source and these partitions."""
        known_source, known_tokens = self.identity
        if known_source != dict(source):
            raise JobError(
                f"{self.root}: the table is of {_shown(known_source)}, not of "
                f"{_shown(source)}; archive that into another directory"
            )
        if known_tokens != dict(tokens):
            raise JobError(
                f"{self.root}: the table is partitioned by {', '.join(self.log.partitions)}; "
                "that cannot be changed, archive into another directory"
            )

    def begin(self, schema: str, keep_hours: int) -> None:
        """Take over the table from earlier jobs, remove what they left, and add new columns."""
        self._keep_hours = keep_hours
        self.log.begin()
        self._files.remove(STAGING)
        self.log.vacuum(keep_hours, only_replaced=False)
        self.log.add_columns(schema)

    def read(self) -> DataFrame:
        """Return all messages of the table, with the partitions as columns."""
        if not self.log.has_plain_files:
            raise JobError(f"{self.root}: it has features that only Delta's own readers know")
        schema = self._schema
        paths = [self._files.absolute(file.path) for file in self.log.files()]
        if not paths:
            return self._spark.createDataFrame([], schema)
        rows = self._spark.read.schema(schema).option("basePath", self.root).parquet(*paths)
        # deltalake escapes the UTF-8 bytes of a directory's name when it compacts, and Spark takes
        # each byte for a character. Only then are the columns computed, as filters of them would
        # read all files.
        is_misread = any(_ESCAPED_UTF8.search(path) for path in paths)
        return self._with_partitions(rows) if is_misread else rows

    def append(self, batch: DataFrame) -> None:
        """Add the messages that the table does not have."""
        staging = f"{STAGING}/{token_hex(8)}"  # a killed attempt may still write to its own one
        new = self._partitioned(self._without_known(batch))
        new.write.partitionBy(*self.log.partitions).parquet(self._files.absolute(staging))
        found = self._staged(staging)
        streams: dict[str, StreamRange] = {}
        for row in found:
            added = StreamRange(row.min_seq, row.max_seq, row.messages)
            streams[row.stream] = added.joined(streams.get(row.stream))
        if streams:
            self._commit(staging, _data_files(found, staging, self.log.partitions), streams)
        self._files.remove(staging)

    def compact(
        self, target_bytes: int = TARGET_FILE_BYTES, files_min: int = SMALL_FILES_MIN
    ) -> int:
        """Merge small files; return how many files were replaced."""
        replaced = self.log.compact(target_bytes, files_min)
        if replaced:
            self.log.vacuum(self._keep_hours, only_replaced=True)
        return replaced

    def _commit(
        self, staging: str, files: Mapping[str, DataFile], streams: Mapping[str, StreamRange]
    ) -> None:
        """Move staged files to their final paths, and add them to the log with their messages."""
        for staged, file in files.items():
            self._files.move(f"{staging}/{staged}", file.path)
        self._files.sync(file.path for file in files.values())
        first = self.log.version + 1
        self.log.add(files.values(), streams)
        for name, added in streams.items():
            self.added[name] = added.joined(self.added.get(name))
        versions = range(first, self.log.version + 1)
        self._files.sync(f"{DIRECTORY}/{version:020}.json" for version in versions)

    def _staged(self, staging: str) -> list[Row]:
        """Return a row for each staged file and each stream in it."""
        from pyspark.sql import functions as F

        rows = self._spark.read.schema(self._schema).parquet(self._files.absolute(staging))
        file = {
            "path": F.col("_metadata.file_path"),
            "size_bytes": F.col("_metadata.file_size"),
            "modified_ms": F.unix_millis("_metadata.file_modification_time"),
        }
        partitions = {f"in_{name}": F.col(name).cast("string") for name in self.log.partitions}
        keys = [column.alias(name) for name, column in (file | partitions).items()]
        bounds = [
            bound(name).alias(f"{kind}_{name}")
            for name in _MEASURED
            for kind, bound in (("min", F.min), ("max", F.max))
        ]
        return (
            rows.groupBy(*keys, "stream").agg(F.count("seq").alias("messages"), *bounds).collect()
        )

    @property
    def _schema(self) -> StructType:
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self.log.schema))

    def _without_known(self, batch: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        known = [
            (F.col("stream") == name) & (F.col("seq") <= self.log.last(name))
            for name in self.log.streams
        ]
        return batch.where(~reduce(or_, known)) if known else batch

    def _partitioned(self, rows: DataFrame) -> DataFrame:
        """Add the partition columns, and sort the rows so that those of one file are adjacent."""
        rows = self._with_partitions(rows)
        if len(self.log.partitions) > 1:
            rows = rows.repartition(*self.log.partitions)
        return rows.sortWithinPartitions(*self.log.partitions, "stream", "seq")

    def _with_partitions(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        _, known_tokens = self.identity
        tokens: dict[str, Column] = {
            name: F.get(F.split("subject", r"\."), F.lit(token - 1))
            for name, token in known_tokens.items()
        }
        day = F.expr(f"date_from_unix_date(cast(floor(time_ns / {_NS_PER_DAY}) as int))")
        return rows.withColumns({DAY: day, **tokens})


def _data_files(
    found: Iterable[Row], staging: str, partitions: Iterable[str]
) -> dict[str, DataFile]:
    """Return the files, by their paths below the staging directory."""
    by_path: dict[str, list[Row]] = {}
    for row in found:
        path = unquote(row.path).partition(f"{staging}/")[2]
        by_path.setdefault(path, []).append(row)
    return {
        path: DataFile(
            # deltalake looks for a file with `~` in its path under another name when it compacts.
            path.replace("~", "%7E"),
            rows[0].size_bytes,
            rows[0].modified_ms,
            {name: rows[0][f"in_{name}"] for name in partitions},
            {
                "numRecords": sum(row.messages for row in rows),
                "minValues": {name: min(row[f"min_{name}"] for row in rows) for name in _MEASURED},
                "maxValues": {name: max(row[f"max_{name}"] for row in rows) for name in _MEASURED},
                "nullCount": dict.fromkeys(_MEASURED, 0),
            },
        )
        for path, rows in by_path.items()
    }


def _schema_of(columns: str) -> str:
    from pyspark.sql.types import StructType

    return StructType.fromDDL(columns).json()


def _shown(source: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in source.items())
