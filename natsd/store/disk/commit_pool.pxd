"""Worker threads that write and sync without the GIL; see commit_pool.pyx."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t


cdef extern from "natsd/store/disk/commit_steps.h" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass


cdef struct Step:
    int kind
    int fd
    const char* data          # bytes to write
    const char* path          # of a directory, of a file to put, or of the source of a rename
    const char* target        # of a rename
    size_t size
    int64_t offset            # where to write or allocate; for a truncation the size
    int part                  # of the job, from 1 on; 0: runs only if all parts succeeded
    Py_buffer held            # keeps the written bytes in place
    bint is_held
    int error                 # 0: done or skipped; > 0: errno; -1: short write
    size_t written


cdef struct JobState:
    JobState* next
    PyObject* job             # the PoolJob; referenced from submit to take_completed
    Step* steps
    int count
    int capacity
    int failed_step           # the first failed step; -1: none failed


cdef struct JobList:
    JobState* first
    JobState* last


cdef struct Pool:
    pthread_mutex_t mutex
    pthread_cond_t wake
    JobList waiting
    JobList done
    pthread_t* threads
    int threads_max
    int thread_count
    int waiting_count
    int idle_count            # threads asleep, or about to wake for a waiting job
    bint is_closing
    int[2] bell


cdef class PoolJob:
    cdef JobState state
    cdef bint is_submitted
    cdef int part             # part of the next steps; 0: none
    cdef int parts
    cdef list paths           # encoded paths of steps that have some
    cdef list files           # the file or path of each step, for its error
    cdef readonly object token
    cdef readonly object error
    cdef readonly list failures

    cdef Step* add(self, int kind, object target) except NULL
    cdef const char* encoded(self, path) except NULL
    cdef int finish(self) except -1
    cdef void let_go(self) noexcept
    cdef object error_of(self, int at)


cdef class CommitPool:
    cdef Pool* pool
    cdef readonly int in_flight
    cdef object loop
    cdef object reader        # notified when the bell rings: the loop, or its reactor

    cdef int start_thread(self) except -1
    cdef void join(self) noexcept
    cdef void close_bell(self) noexcept
