"""The interface of a disk, and small files that survive the loss of a copy."""
