"""Tests of natsd/store/wal."""
