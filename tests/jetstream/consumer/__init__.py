"""Tests of consumers: configuration rules, life cycle, files and delivery."""
