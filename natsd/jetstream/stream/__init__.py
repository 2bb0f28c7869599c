"""A stream: its core, the publish path, direct get, and its configuration and files."""
