"""Spark's writer: each row is stored once, whatever Spark retries."""
