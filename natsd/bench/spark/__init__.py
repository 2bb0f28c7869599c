"""Rows about Spark: `natsd bench --spark`."""
