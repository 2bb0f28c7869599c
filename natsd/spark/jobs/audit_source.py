"""An audit's tasks as rows: a data source of their own, since Spark gives Arrow to no other kind of
task without pandas.

The tasks travel in an option, from the driver to itself; each executor gets its own alone.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from natsd.spark.jobs.audit_tasks import SCHEMA, AuditTask, run_task

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

TASKS: Final = "tasks"


def rows_of(spark: SparkSession, tasks: Sequence[AuditTask]) -> DataFrame:
    """What the tasks say, one of Spark's for each of them; there is at least one."""
    spark.dataSource.register(AuditSource)
    packed = base64.b64encode(pickle.dumps(list(tasks))).decode()
    return spark.read.format(AuditSource.name()).option(TASKS, packed).load()


class AuditSource(DataSource):
    """See the top of the file."""

    @classmethod
    def name(cls) -> str:
        return "natsd_audit"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return AuditReader(pickle.loads(base64.b64decode(self.options[TASKS])))


class AuditPartition(InputPartition):
    """One task."""

    def __init__(self, task: AuditTask) -> None:
        super().__init__(task)
        self.task = task


class AuditReader(DataSourceReader):
    """Goes to executors without the tasks: partitions bring them."""

    def __init__(self, tasks: list[AuditTask]) -> None:
        self._tasks = tasks

    def __getstate__(self) -> dict[str, Any]:
        return {"_tasks": []}

    def partitions(self) -> list[AuditPartition]:
        return [AuditPartition(task) for task in self._tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, AuditPartition)
        return run_task(partition.task)
