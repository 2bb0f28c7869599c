"""Tests of natsd/store/crypto."""
