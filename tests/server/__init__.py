"""Tests of the server as a part of another program."""
