"""Tests of the benchmark's rows with three replicas."""
