"""Tests of the benchmark's Spark rows; those that need a session are in tests/spark."""
