"""Tests of natsd.accounts."""
