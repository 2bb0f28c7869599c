"""The data source `jetstream`, and the module behind each kind of use.

    spark.read        →  batch_reader    or store_reader, with storeDir
    spark.readStream  →  stream_reader   or queue_reader, with mode=queue
    df.write(Stream)  →  writer

Spark imports this module in five kinds of processes, and some of them call a single method. So each
method imports what it needs.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from natsd.spark.options import ReadOptions

PUSHES_FILTERS: Final = "data_source_pushdown_filters.py"
"""File name of the Spark process that calls `pushFilters`.

It runs only if the session enables filter pushdown.
"""


class JetStreamSource(DataSource):
    """The data source behind `format("jetstream")`, for batch and streaming reads and writes."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "jetstream"

    def schema(self) -> str:
        """Return the schema of a read as Spark DDL: the columns that the options choose."""
        from natsd.spark.rows import columns

        return columns.ddl(self._read_options().column_names)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch reader; one with `pushFilters` only if the process asks for filters."""
        from natsd.spark.reader.readers import batch_reader

        caller = sys._getframe(1).f_code.co_filename
        options = self._read_options().check_batch()
        takes_filters = options.push_filters and caller.endswith(PUSHES_FILTERS)
        return batch_reader(options, schema, takes_filters=takes_filters)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the streaming reader."""
        from natsd.spark.reader.readers import stream_reader

        return stream_reader(self._read_options().check_stream(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the batch writer."""
        from natsd.spark.sink.write_settings import WriteSettings
        from natsd.spark.sink.writer import batch_writer

        return batch_writer(WriteSettings.parse(self.options).for_batch(), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the streaming writer."""
        from natsd.spark.sink.write_settings import WriteSettings
        from natsd.spark.sink.writer import stream_writer

        return stream_writer(WriteSettings.parse(self.options).for_stream(), schema, overwrite)

    def _read_options(self) -> ReadOptions:
        from natsd.spark.options import ReadOptions

        return ReadOptions.parse(self.options)
