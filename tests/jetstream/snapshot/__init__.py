"""Tests of snapshots of streams: snapshots and restores."""
