"""Rows that compiled code makes."""
