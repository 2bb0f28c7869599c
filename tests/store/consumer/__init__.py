"""Tests of natsd/store/consumer."""
