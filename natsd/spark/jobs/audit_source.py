"""The tasks of an audit as a data source: only a data source runs Arrow tasks without pandas.

An option carries the tasks within the driver; each executor gets only its own task.
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
    """Return the rows of all tasks; each task is one of Spark's. There must be at least one."""
    spark.dataSource.register(AuditSource)
    packed = base64.b64encode(pickle.dumps(list(tasks))).decode()
    return spark.read.format(AuditSource.name()).option(TASKS, packed).load()


class AuditSource(DataSource):
    """The data source whose rows are the results of audit tasks."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "natsd_audit"

    def schema(self) -> str:
        """Return the schema of the results."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the tasks in the option."""
        return AuditReader(pickle.loads(base64.b64decode(self.options[TASKS])))


class AuditPartition(InputPartition):
    """One audit task."""

    def __init__(self, task: AuditTask) -> None:
        super().__init__(task)
        self.task = task


class AuditReader(DataSourceReader):
    """The reader; its copies on executors have no tasks, because partitions carry them."""

    def __init__(self, tasks: list[AuditTask]) -> None:
        self._tasks = tasks

    def __getstate__(self) -> dict[str, Any]:
        return {"_tasks": []}

    def partitions(self) -> list[AuditPartition]:
        """Return one partition for each task."""
        return [AuditPartition(task) for task in self._tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run the task of the partition, on an executor."""
        assert isinstance(partition, AuditPartition)
        return run_task(partition.task)
