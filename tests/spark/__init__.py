"""Tests of natsd.spark, with and without a Spark session."""
