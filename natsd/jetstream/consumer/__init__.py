"""Consumers: who reads a stream, how far each has come, and what waits for its acknowledgement."""
