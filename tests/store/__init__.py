"""Tests of natsd.store: sequence sets, records, blocks, logs and durability."""
