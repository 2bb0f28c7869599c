"""Tests of jobs over streams, with a real SparkSession."""
