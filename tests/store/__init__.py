"""The store: record layout, blocks, logs, durability."""
