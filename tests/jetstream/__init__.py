"""Tests of `natsd.jetstream`."""
