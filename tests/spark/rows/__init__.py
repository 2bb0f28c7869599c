"""Tests of rows that compiled code makes."""
