"""Ranges of a stream read from its files: a store directory that no server uses, or a snapshot."""
