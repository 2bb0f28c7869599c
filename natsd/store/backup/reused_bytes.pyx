"""A pool of large bytes objects whose memory is reused.

Fresh pages from the kernel cost more than writing to them.

Promise
- A returned bytes object does not change as long as it, or a view of it, is referenced. Its memory
  is reused once nothing else refers to it.
- At most `count` objects are kept.
"""

from cpython.object cimport PyObject
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t
from libc.string cimport memcpy
from posix.unistd cimport pread

from os import strerror

cdef extern from "natsd/store/block/buffers.h" nogil:
    void natsd_prefer_huge_pages(unsigned char* data, size_t size)

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject* object)
    void Py_INCREF(PyObject* object)
    void Py_DECREF(PyObject* object)
    PyObject* PyList_GET_ITEM(list items, Py_ssize_t index)
    PyObject* new_bytes "PyBytes_FromStringAndSize"(const char* data, Py_ssize_t size) except NULL
    int _PyBytes_Resize(PyObject** data, Py_ssize_t size) except -1
    char* bytes_at "PyBytes_AS_STRING"(PyObject* data)


cdef class ReusedBytes:
    """A pool for code that needs many large bytes objects, but few at a time."""

    cdef list kept
    cdef Py_ssize_t count

    def __init__(self, Py_ssize_t count):
        self.kept = []
        self.count = count

    def copy(self, const unsigned char[::1] data not None) -> bytes:
        """Return a copy of `data` in reused memory."""
        cdef Py_ssize_t size = data.shape[0]
        cdef PyObject* taken = self.take(size)
        cdef object copied = <object> taken
        Py_DECREF(taken)
        if size:
            memcpy(bytes_at(taken), &data[0], size)
        return self.keep(copied)

    def read(self, int descriptor, Py_ssize_t size, int64_t offset) -> bytes:
        """Read up to `size` bytes at `offset`; the result is shorter only at the file's end.

        Blocks on the disk, without the GIL. Raises OSError.
        """
        cdef PyObject* taken = self.take(size)
        cdef object data
        cdef Py_ssize_t done = 0
        try:
            done = self.fill(descriptor, bytes_at(taken), size, offset)
            if done < size:
                _PyBytes_Resize(&taken, done)
            data = <object> taken
        finally:
            if taken != NULL:
                Py_DECREF(taken)
        return self.keep(data)

    cdef object keep(self, object data):
        if len(self.kept) < self.count:
            self.kept.append(data)
        return data

    cdef PyObject* take(self, Py_ssize_t size) except NULL:
        """Return a new reference to a bytes object of that size that nothing else refers to."""
        cdef PyObject* item
        cdef Py_ssize_t index
        for index in range(len(self.kept)):
            item = PyList_GET_ITEM(self.kept, index)
            if Py_REFCNT(item) == 1:
                Py_INCREF(item)
                del self.kept[index]
                if size:
                    _PyBytes_Resize(&item, size - 1)    # resizing clears the cached hash
                _PyBytes_Resize(&item, size)
                return item
        item = new_bytes(NULL, size)
        natsd_prefer_huge_pages(<unsigned char*> bytes_at(item), size)
        return item

    cdef Py_ssize_t fill(
        self, int descriptor, char* to, Py_ssize_t size, int64_t offset
    ) except -1:
        cdef Py_ssize_t done = 0
        cdef Py_ssize_t more = 1
        cdef int why = 0
        while done < size and more:
            with nogil:
                more = pread(descriptor, to + done, size - done, offset + done)
                why = errno
            if more < 0 and why != EINTR:
                raise OSError(why, strerror(why))
            done += max(more, 0)
        return done
