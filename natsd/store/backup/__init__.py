"""Copies of a stream: snapshots, snapshots, and the views from which they are made."""
