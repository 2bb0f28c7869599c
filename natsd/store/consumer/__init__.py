"""A consumer's state: what was delivered and acknowledged, in memory and in its files."""
