"""Consumers: rules, life, files, delivery."""
