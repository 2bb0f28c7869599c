"""Blocks: the messages of a stream, up to 8 MiB at a time, in memory and in their files."""
