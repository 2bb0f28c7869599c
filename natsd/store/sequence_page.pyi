"""Compiled functions only: nothing here is visible from Python."""
