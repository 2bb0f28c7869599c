"""Declarations of client_mapping.pyx."""

from natsd.core.routing cimport Message


cdef int map_subject(ClientSession session, Message* message) except -1
