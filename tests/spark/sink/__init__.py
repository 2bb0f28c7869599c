"""Tests of natsd.spark.sink: each row is written once."""
