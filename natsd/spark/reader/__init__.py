"""Readers of batches, streams and queues, and how they divide work into partitions."""
