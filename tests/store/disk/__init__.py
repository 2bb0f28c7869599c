"""Tests of natsd/store/disk."""
