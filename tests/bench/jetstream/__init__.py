"""Tests of the benchmark's JetStream rows."""
