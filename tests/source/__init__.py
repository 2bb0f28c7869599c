"""Tests of the source: layers, lengths, banned calls, open ends, and the contents of packages."""
