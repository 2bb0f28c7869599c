"""Tests of natsd/store/codec."""
