"""The subject mappings of the account of a client that publishes."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from natsd.core.routing cimport Message


cdef int map_subject(ClientSession session, Message* message) except -1:
    """Give a message the subject that the account's mappings make of its own."""
    cdef bytes mapped = session.mappings.map(message.subject, message.subject_len)
    if mapped is None:
        return 0
    if session.trace:
        session.trace_operation(
            "<<-", b"MAPPING " + message.subject[:message.subject_len] + b" -> " + mapped
        )
    session.mapped = mapped
    message.subject = PyBytes_AS_STRING(mapped)
    message.subject_len = PyBytes_GET_SIZE(mapped)
    if session.traced is not None:
        session.traced.trace.subject_mapping(mapped)
    return 0
