"""Tests of natsd/store/maintenance."""
