"""Tests of natsd.jetstream.stream."""
