"""See last_positions.pyx."""
