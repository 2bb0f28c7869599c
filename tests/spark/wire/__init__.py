"""The blocking client, its frames and ways in."""
