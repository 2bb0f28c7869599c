"""Tests of archives of streams: snapshots and restores."""
