"""Tests of natsd/store/log."""
