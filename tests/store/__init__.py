"""The store: sequence sets, records, blocks, logs, durability."""
