"""Where the bytes of whole records may be cut, so that each piece is compressed by itself.

Compiled since walking 50,000 records took 14 ms of Python for a block of 8 MiB, half of what its
compression takes; now it takes 1 ms (`wrap_block`, Xeon 2 GHz, November 2026).
"""

cimport cython

from natsd.store.record cimport MARK, RECORD_BYTES_MIN, record_length_at


@cython.boundscheck(False)    # of what follows `at`, RECORD_BYTES_MIN are checked to be there
@cython.wraparound(False)
def piece_bounds(records: memoryview, piece_bytes: int) -> list:
    """Bounds (start, end) of pieces that together are `records`, in order.

    A piece is at most `piece_bytes` long, or one record; marks that follow go with it. Up to two
    marks at the end have a piece each. `records` must be whole records, or ValueError is raised;
    none gives no piece.
    """
    cdef const unsigned char[::1] view = records
    cdef Py_ssize_t size = view.shape[0], limit = piece_bytes
    cdef Py_ssize_t start = 0, at = 0, length
    cdef Py_ssize_t mark = size, mark_before = size     # where the marks at the end begin
    cdef list bounds = []
    while at < size:
        length = record_length_at(&view[at]) if size - at >= RECORD_BYTES_MIN else 0
        if not RECORD_BYTES_MIN <= length <= size - at:
            raise ValueError(f"no whole record at byte {at}")
        if view[at + 4] != MARK:
            mark = mark_before = size
            if at > start and at + length - start > limit:
                bounds.append((start, at))
                start = at
        else:
            mark_before = mark
            mark = at
        at += length
    for at in (mark_before, mark):
        if start < at < size:
            bounds.append((start, at))
            start = at
    if start < size:
        bounds.append((start, size))
    return bounds
