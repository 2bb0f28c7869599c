"""Tests of the blocking client, its frames and its authentication."""
