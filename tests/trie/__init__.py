"""Tests of natsd.trie."""
