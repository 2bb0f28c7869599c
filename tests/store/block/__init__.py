"""Tests of natsd/store/block."""
