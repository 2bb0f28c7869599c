"""A stream: its readers, the publish path, direct get, and its configuration and files."""
