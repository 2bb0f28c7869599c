"""The data source, from frames and records to Spark's own answers."""
