"""Scheduled and delayed messages: a stream publishes them to itself when they are due."""
