"""The format `jetstream`: what Spark asks of it, and which file answers.

    spark.read        →  batch_reader    or store_reader, with storeDir
    spark.readStream  →  stream_reader   or queue_reader, with mode=queue
    df.write(Stream)  →  writer

Spark imports this in processes of five kinds and asks some of them a single question: what an
answer needs is imported where it is given.
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
"""Spark's process that asks for `pushFilters`. It runs where the session enables them."""


class JetStreamSource(DataSource):
    """`spark.read.format("jetstream")` and its like for streams and for writing."""

    @classmethod
    def name(cls) -> str:
        return "jetstream"

    def schema(self) -> str:
        from natsd.spark.rows import columns

        return columns.ddl(self._read_options().column_names)

    def reader(self, schema: StructType) -> DataSourceReader:
        from natsd.spark.reader.readers import batch_reader

        caller = sys._getframe(1).f_code.co_filename
        options = self._read_options().check_batch()
        takes_filters = options.push_filters and caller.endswith(PUSHES_FILTERS)
        return batch_reader(options, schema, takes_filters=takes_filters)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from natsd.spark.reader.readers import stream_reader

        return stream_reader(self._read_options().check_stream(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from natsd.spark.sink.write_settings import WriteSettings
        from natsd.spark.sink.writer import batch_writer

        return batch_writer(WriteSettings.parse(self.options).for_batch(), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from natsd.spark.sink.write_settings import WriteSettings
        from natsd.spark.sink.writer import stream_writer

        return stream_writer(WriteSettings.parse(self.options).for_stream(), schema, overwrite)

    def _read_options(self) -> ReadOptions:
        from natsd.spark.options import ReadOptions

        return ReadOptions.parse(self.options)
