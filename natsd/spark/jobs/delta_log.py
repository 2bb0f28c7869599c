"""The Delta Lake log of an archive: what the table holds, and how much of each stream.

    <root>/_delta_log/00000000000000000042.json     version 42: files added, and one transaction
                                                    for each stream, whose version is a sequence

    log = DeltaLog.create("/data/orders", schema, ["day"], {"natsd.source": "…"}, {})
    log.begin()                     from now on this job writes, and no earlier one
    log.add(files, streams)         all of it or nothing
    log.last("ORDERS")              the last archived sequence

Promise
- A stream's transaction and the files with its messages are one commit: the last sequence of a
  stream that the log names is the last one that the files hold.
- `begin` commits a number for the job, and a job adds files only while the number is its own;
  Delta's conflict check covers the time between this check and the commit. So of two jobs, as when
  a job that seemed dead still runs, only the one that began last adds messages.
- Files that the log no longer names are kept for time travel, until `vacuum` removes them.

Source: the Delta transaction protocol (delta-io/delta, PROTOCOL.md), through the package deltalake.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import unquote

from natsd.spark.jobs.errors import JobError

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

DIRECTORY: Final = "_delta_log"
JOB: Final = "natsd archive"
"""Application id of the transaction whose version is the number of the writing job."""
STREAMS: Final = "natsd.streams"
"""Table property with the names of the archived streams, as JSON."""
_NOT_ALONE: Final = "another job writes this table now; run one at a time"
_COLOUR: Final = re.compile(r"\x1b\[\d+m.?\x1b\[0m|\x1b\[\d+m")


@dataclass(frozen=True, slots=True)
class StreamRange:
    """Messages of one stream: their number, and their first and last sequence."""

    first: int
    last: int
    rows: int

    def joined(self, other: StreamRange | None) -> StreamRange:
        """Return the range that covers both, with the sum of their messages."""
        if other is None:
            return self
        first, last = min(self.first, other.first), max(self.last, other.last)
        return StreamRange(first, last, self.rows + other.rows)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of the table.

    `path` is relative to the root; `partition` holds the partition columns' values; `statistics`
    are Delta's: `numRecords`, and the smallest and largest values of columns.
    """

    path: str
    size_bytes: int
    modified_ms: int
    partition: Mapping[str, str | None]
    statistics: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A file in the current version of the table."""

    path: str
    size_bytes: int
    rows: int
    partition: str | None
    """Value of the first partition column."""


class DeltaLog:
    """The log of one table, open for reading and for one writing job. Methods block on storage."""

    def __init__(self, root: str, storage: Mapping[str, str]) -> None:
        """Open a table. `storage` holds the options of its file system for the package deltalake.

        Raises JobError if there is no table, or it cannot be read.
        """
        from deltalake import DeltaTable

        self._root = root
        with _one_line(f"{root}/{DIRECTORY}"):
            self._table: DeltaTable = DeltaTable(root, storage_options=dict(storage))
        self._job: int | None = None

    @classmethod
    def create(
        cls,
        root: str,
        schema: str,
        partitions: Sequence[str],
        properties: Mapping[str, str],
        storage: Mapping[str, str],
    ) -> Self:
        """Create a table and open it. `schema` is the JSON of a Spark schema. Raises JobError."""
        from deltalake import DeltaTable, Schema

        with _one_line(root):
            DeltaTable.create(
                root,
                Schema.from_json(schema),
                partition_by=list(partitions),
                configuration=dict(properties),
                storage_options=dict(storage),
                raise_if_key_not_exists=False,
            )
        return cls(root, storage)

    @property
    def schema(self) -> str:
        """Schema of the table, as the JSON of a Spark schema."""
        return self._table.schema().to_json()

    @property
    def partitions(self) -> list[str]:
        """Names of the partition columns."""
        return list(self._table.metadata().partition_columns)

    @property
    def properties(self) -> dict[str, str]:
        """Properties of the table."""
        return dict(self._table.metadata().configuration)

    @property
    def version(self) -> int:
        """Version of the table."""
        return self._table.version()

    @property
    def has_plain_files(self) -> bool:
        """Whether all rows of the table are the rows of its Parquet files, by column names."""
        return self._table.protocol().min_reader_version == 1

    @property
    def streams(self) -> list[str]:
        """Names of the streams of which the table has, or had, messages."""
        names: list[str] = json.loads(self.properties.get(STREAMS, "[]"))
        return [name for name in names if self.last(name)]

    def last(self, stream: str) -> int:
        """Return the last archived sequence of a stream; 0: none."""
        return self._table.transaction_version(_transaction_of(stream)) or 0

    def files(self) -> list[HeldFile]:
        """Return the files of the table."""
        import pyarrow as pa

        held = pa.table(self._table.get_add_actions(flatten=True))
        partitions = self.partitions
        first = f"partition.{partitions[0]}" if partitions else None
        columns = [held[name].to_pylist() for name in ("path", "size_bytes", "num_records")]
        values = [None] * len(held) if first is None else held[first].to_pylist()
        return [
            HeldFile(unquote(path), size, rows or 0, None if value is None else str(value))
            for path, size, rows, value in zip(*columns, values, strict=True)
        ]

    def begin(self) -> None:
        """Take over the table: commits of a job that began earlier are refused."""
        self._job = (self._table.transaction_version(JOB) or 0) + 1
        self._commit([], {})

    def _check_job(self) -> None:
        with _one_line(self._root):
            self._table.update_incremental()
        if self._table.transaction_version(JOB) != self._job:
            raise JobError(f"{self._root}: {_NOT_ALONE}")

    def add(self, files: Iterable[DataFile], streams: Mapping[str, StreamRange]) -> None:
        """Commit new files, with the new messages of each stream in them. Raises JobError."""
        self._check_job()
        known = self.streams
        if new := [name for name in sorted(streams) if name not in known]:
            self._set_property(STREAMS, json.dumps([*known, *new]))
        self._commit(files, {name: added.last for name, added in streams.items()})

    def add_columns(self, schema: str) -> None:
        """Add the columns that the table does not have yet. `schema` is a Spark schema's JSON."""
        from deltalake import Schema

        has = {field.name for field in self._table.schema().fields}
        new = [field for field in Schema.from_json(schema).fields if field.name not in has]
        if new:
            with _one_line(self._root):
                self._table.alter.add_columns(new)
                self._table.update_incremental()

    def compact(self, target_bytes: int, files_min: int) -> int:
        """Merge small files; return how many were replaced.

        A small file has at most half of `target_bytes`. Files are merged where at least `files_min`
        small ones are in one directory, and in the directories with the same first partition value.
        No rows change, so Delta's own conflict check is enough.
        """
        small = Counter(
            (file.path.rpartition("/")[0], file.partition)
            for file in self.files()
            if file.size_bytes * 2 <= target_bytes
        )
        values = sorted(
            {value for (_, value), count in small.items() if value and count >= files_min}
        )
        if not values:
            return 0
        with _one_line(self._root):
            done = self._table.optimize.compact(
                [(self.partitions[0], "in", values)],
                target_size=target_bytes,
            )
        return int(done["numFilesRemoved"])

    def vacuum(self, keep_hours: int, *, only_replaced: bool) -> None:
        """Remove files that the table has not named for `keep_hours`.

        `only_replaced`: those that its log removed; otherwise also files that a killed job left,
        which are found by listing all directories.
        """
        with _one_line(self._root):
            self._table.vacuum(
                retention_hours=keep_hours,
                dry_run=False,
                enforce_retention_duration=False,
                full=not only_replaced,
            )
            self._table.update_incremental()

    def _set_property(self, name: str, value: str) -> None:
        with _one_line(self._root):
            self._table.alter.set_table_properties({name: value}, raise_if_not_exists=False)
            self._table.update_incremental()

    def _commit(self, files: Iterable[DataFile], sequences: Mapping[str, int]) -> None:
        from deltalake.transaction import AddAction

        added = [
            AddAction(
                file.path,
                file.size_bytes,
                file.partition,
                file.modified_ms,
                data_change=True,
                stats=json.dumps(file.statistics),
            )
            for file in files
        ]
        with _one_line(self._root):
            self._table.create_write_transaction(
                list(added),
                "append",
                self._table.schema(),
                self.partitions,
                commit_properties=self._properties(sequences),
            )
            self._table.update_incremental()

    def _properties(self, sequences: Mapping[str, int]) -> CommitProperties:
        from deltalake import CommitProperties, Transaction

        assert self._job is not None
        transactions = [Transaction(JOB, self._job)]
        transactions += [Transaction(_transaction_of(name), at) for name, at in sequences.items()]
        return CommitProperties(app_transactions=transactions)


def has_log(root: str, storage: Mapping[str, str]) -> bool:
    """Return whether a Delta table is in `root`. Raises JobError if the storage fails."""
    from deltalake import DeltaTable

    with _one_line(root):
        return DeltaTable.is_deltatable(root, dict(storage))


def _transaction_of(stream: str) -> str:
    return f"{JOB} {stream}"


@contextlib.contextmanager
def _one_line(root: str) -> Iterator[None]:
    """Raise the errors of deltalake as a JobError of one line."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        yield
    except CommitFailedError as error:
        if "transaction failed" not in str(error):
            raise JobError(f"{root}: {_line(error)}") from None
        raise JobError(f"{root}: {_NOT_ALONE}") from None
    except (DeltaError, OSError, ValueError) as error:
        raise JobError(f"{root}: {_line(error)}") from None


def _line(error: Exception) -> str:
    """Return the text of an error as one line, without colours and the stack of Rust."""
    text, _, _ = _COLOUR.sub("", str(error)).partition("\n   0: ")
    return ": ".join(line for line in map(str.strip, text.splitlines()) if line)
