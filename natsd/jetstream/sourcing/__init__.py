"""Mirrors and sources: streams that are filled from other streams."""
