"""Publishes as commands, for compiled callers."""

from natsd.jetstream.stream.checks cimport Entry


# Return the Publish of an applied entry; `removed` are the runs of messages that it replaced.
cdef object publish_command(Entry* entry, tuple removed)
