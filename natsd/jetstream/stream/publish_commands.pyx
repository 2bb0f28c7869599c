"""Publishes as commands: made of an entry on the leader, and applied as one on the other replicas.

Source: docs/architecture.md ("Commands").
"""

from libc.stdint cimport uint64_t
from libc.string cimport memset

from natsd.jetstream.stream.checks cimport Entry, IS_DELAYED
from natsd.store.codec.records cimport record_size

from natsd.jetstream.commands.commands import Publish


cdef object publish_command(Entry* entry, tuple removed):
    return Publish(
        sequence=entry.sequence,
        time_ns=entry.time_ns,
        subject=entry.subject[:entry.subject_len],
        headers=entry.headers[:entry.headers_len] if entry.headers_len else b"",
        data=entry.data[:entry.data_len] if entry.data_len else b"",
        expires_ns=entry.expires_ns,
        message_id=entry.message_id[:entry.message_id_len] if entry.message_id_len else b"",
        is_skipped=entry.is_skipped,
        is_delayed=entry.scheduling & IS_DELAYED != 0,
        removed=removed,
    )


def apply_publish(Ingest ingest not None, command not None) -> None:
    """Apply a Publish command of the leader, but for the removal of the messages that it replaces.

    Raises StoreError.
    """
    cdef Entry entry
    cdef bytes subject = command.subject, headers = command.headers, data = command.data
    cdef bytes message_id = command.message_id
    memset(&entry, 0, sizeof(Entry))
    entry.subject, entry.subject_len = subject, len(subject)
    entry.headers, entry.headers_len = headers, len(headers)
    entry.data, entry.data_len = data, len(data)
    entry.message_id, entry.message_id_len = message_id, len(message_id)
    entry.sequence = command.sequence
    entry.time_ns = command.time_ns
    entry.expires_ns = command.expires_ns
    entry.is_skipped = command.is_skipped
    entry.scheduling = IS_DELAYED if command.is_delayed else 0
    ingest.apply(&entry)
    ingest.count_bytes()


def begin_together(Ingest ingest not None, commands not None) -> None:
    """Begin to apply an atomic batch: a crash leaves all of its messages, or none.

    `commands` are its Publish commands. `end_together` must follow. Raises StoreError.
    """
    cdef uint64_t count = 0, size = 0
    for command in commands:
        count += 1
        size += record_size(
            len(command.subject), len(command.headers), len(command.data), command.expires_ns != 0
        )
    ingest.log.begin_together(count, size)


def end_together(Ingest ingest not None) -> None:
    """End an atomic batch: all of it was applied."""
    ingest.log.end_together()
