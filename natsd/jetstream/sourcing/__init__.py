"""Mirrors and sources: streams that get their messages from other streams."""
