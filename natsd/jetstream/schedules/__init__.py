"""Scheduled messages: what a stream publishes to itself, when the time has come."""
