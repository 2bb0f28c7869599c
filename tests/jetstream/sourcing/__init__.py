"""Tests of natsd.jetstream.sourcing."""
