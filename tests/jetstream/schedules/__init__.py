"""Tests of schedules and delayed messages."""
