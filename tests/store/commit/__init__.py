"""Tests of natsd/store/commit."""
