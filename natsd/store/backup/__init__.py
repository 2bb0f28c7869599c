"""Copies of a stream: snapshots, archives, and the views from which they are made."""
