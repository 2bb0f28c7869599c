"""Storage of streams and consumers: blocks of messages, subject index, commits and recovery."""
