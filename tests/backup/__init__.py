"""Backups: directories, copies of running servers and of files, restores."""
