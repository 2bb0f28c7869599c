"""Empty: last_positions.pyx has nothing for compiled callers."""
