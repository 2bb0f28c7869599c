"""Tests of natsd.spark.reader."""
