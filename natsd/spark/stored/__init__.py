"""Reads of stream ranges from files: a store directory that no server uses, or a snapshot."""
