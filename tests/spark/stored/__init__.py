"""Reads of store directories and snapshots."""
