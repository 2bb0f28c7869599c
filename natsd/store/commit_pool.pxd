"""Worker threads that write and sync without the GIL; see commit_pool.pyx."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t


cdef extern from "commit_steps.h" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass


cdef struct Step:
    int kind
    int fd
    const char* data          # to write; or the path of a directory to sync
    size_t size
    int64_t offset            # where to write or allocate; the size to truncate to
    int part                  # of the job, from 1 on; 0: it is not done unless all parts were
    Py_buffer held            # keeps what is written in place
    bint is_held
    int error                 # 0: it was done, or passed by; an errno; -1: it wrote too little
    size_t written


cdef struct JobState:
    JobState* next
    PyObject* job             # the PoolJob, owned from submit to take_completed
    Step* steps
    int count
    int capacity
    int failed_step           # the first one that failed; -1: all were done


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
    int idle_count            # threads asleep, or about to wake for what is waiting
    bint is_closing
    int[2] bell


cdef class PoolJob:
    cdef JobState state
    cdef bint is_submitted
    cdef int part             # that the next steps belong to; 0: none
    cdef int parts
    cdef list paths           # of directories, encoded
    cdef list files           # what each step works on, for its error
    cdef readonly object token
    cdef readonly object error
    cdef readonly list failures

    cdef Step* add(self, int kind, object target) except NULL
    cdef int finish(self) except -1
    cdef void let_go(self) noexcept
    cdef object error_of(self, int at)


cdef class CommitPool:
    cdef Pool* pool
    cdef readonly int in_flight
    cdef object loop
    cdef object reader        # who tells that the bell was rung: the loop, or its reactor

    cdef int start_thread(self) except -1
    cdef void join(self) noexcept
