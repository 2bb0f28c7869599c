"""Tests of the JetStream rows of the benchmark."""
