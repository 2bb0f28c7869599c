"""Tests of reads of store directories and snapshots."""
