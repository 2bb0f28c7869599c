"""The server as a part of someone's program."""
