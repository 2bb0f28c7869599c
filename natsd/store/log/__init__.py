"""The log of a stream: its blocks in order, its subjects, and every search and removal."""
