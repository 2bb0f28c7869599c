"""Tests of natsd/store/backup."""
