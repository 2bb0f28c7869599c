"""Group commit: which bytes are written and synced together, and what a volume shares."""
