"""Tests of natsd/store/recovery."""
