"""JetStream streams as Spark tables: a PySpark data source, and jobs made of it.

It stands beside the house and imports `core` and `store` only. Executors import it, so that what is
heavy (pyarrow, pyspark, pydantic) is imported where it is used.
"""
