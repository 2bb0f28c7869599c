"""Consumers: the readers of a stream, their positions, and the messages they must acknowledge."""
