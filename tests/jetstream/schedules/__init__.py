"""Schedules, and messages that wait."""
