"""Worker threads that write and sync files without ever needing the GIL.

    event loop                                   worker threads (up to `threads`, as needed)
    submit(job) ──> waiting: job → job → job ──>  allocate, write, sync … of one job, in order
    take_completed() <── done: job → job <──────  until a step fails
          ^── the bell (eventfd, or a pipe) is readable while `done` holds something

A Python thread that returns from `fdatasync` has to wait for the GIL, which a busy event loop
releases only every 5 ms: a commit would take that long. These threads never touch Python.

Promise
- The steps of a job run in order, in one thread; the first failure ends the job. Jobs run
  concurrently, started in the order of `submit`.
- A job may begin with parts: a failure in a part ends only that part. The steps behind the parts
  run if all parts succeeded. So one job writes many files, and then syncs one file for them.
- The written buffers are held (a bytearray cannot be resized) until the job is taken.
- Steps on whole files and directories take paths; those on the bytes of a file take an open file.
- A write that the kernel cut short is a `ShortWrite`; nothing is tried a second time.
- One thread owns the pool: only it may call `submit`, `take_completed`, `wait` and `close`.
- `close` returns only when all submitted jobs have run. Then no thread is left, and no descriptor.
"""

import errno
import os

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport strerror

from natsd.store.disk.disk import DIRECTORY_MODE, FILE_MODE, ShortWrite


cdef extern from "natsd/store/disk/commit_steps.h" nogil:
    int step_allocate(int fd, int64_t offset, int64_t length)
    int step_write(int fd, const char* data, size_t n, int64_t offset, size_t* written)
    int step_write_zeros(int fd, size_t n, int64_t offset, size_t* written)
    int step_datasync(int fd)
    int step_sync_directory(const char* path, size_t* tried)
    int step_truncate(int fd, int64_t size)
    int step_make_directory(const char* path, unsigned mode)
    int step_put_file(
        const char* path, unsigned mode, const char* data, size_t n, size_t* written
    )
    int step_rename(const char* source, const char* target)
    int bell_open(int* ends)
    void bell_ring(int* ends)
    void bell_silence(int* ends)
    void bell_wait(int* ends, int timeout_ms)
    void bell_close(int* ends)
    int worker_start(pthread_t* thread, void* (*work)(void*) noexcept nogil, void* argument)
    int pthread_join(pthread_t thread, void** result)
    int pthread_mutex_init(pthread_mutex_t* mutex, void* attributes)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)
    int pthread_mutex_destroy(pthread_mutex_t* mutex)
    int pthread_cond_init(pthread_cond_t* condition, void* attributes)
    int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex)
    int pthread_cond_signal(pthread_cond_t* condition)
    int pthread_cond_broadcast(pthread_cond_t* condition)
    int pthread_cond_destroy(pthread_cond_t* condition)


cdef enum StepKind:
    ALLOCATE
    WRITE
    WRITE_ZEROS
    DATASYNC
    SYNC_DIRECTORY
    TRUNCATE
    MAKE_DIRECTORY
    PUT_FILE
    RENAME


cdef unsigned directory_mode = DIRECTORY_MODE
cdef unsigned file_mode = FILE_MODE


cdef void append_job(JobList* jobs, JobState* job) noexcept nogil:
    job.next = NULL
    if jobs.first == NULL:
        jobs.first = job
    else:
        jobs.last.next = job
    jobs.last = job


cdef JobState* pop_job(JobList* jobs) noexcept nogil:
    cdef JobState* job = jobs.first
    jobs.first = job.next
    return job


cdef int run_step(Step* step) noexcept nogil:
    """Run one step; return 0, an errno, or -1 for a short write."""
    cdef int error
    if step.kind == WRITE:
        error = step_write(step.fd, step.data, step.size, step.offset, &step.written)
        return -1 if error == 0 and step.written != step.size else error
    if step.kind == DATASYNC:
        return step_datasync(step.fd)
    if step.kind == WRITE_ZEROS:
        error = step_write_zeros(step.fd, step.size, step.offset, &step.written)
        return -1 if error == 0 and step.written != step.size else error
    if step.kind == ALLOCATE:
        return step_allocate(step.fd, step.offset, <int64_t>step.size)
    if step.kind == SYNC_DIRECTORY:
        return step_sync_directory(step.path, &step.written)
    if step.kind == MAKE_DIRECTORY:
        return step_make_directory(step.path, directory_mode)
    if step.kind == PUT_FILE:
        error = step_put_file(step.path, file_mode, step.data, step.size, &step.written)
        return -1 if error == 0 and step.written != step.size else error
    if step.kind == RENAME:
        return step_rename(step.path, step.target)
    return step_truncate(step.fd, step.offset)


cdef void run_job(JobState* job) noexcept nogil:
    cdef int failed_part = 0
    cdef int i
    cdef Step* step
    for i in range(job.count):
        step = &job.steps[i]
        if step.part == 0 and job.failed_step >= 0:
            return
        if step.part != 0 and step.part == failed_part:
            continue
        step.error = run_step(step)
        if step.error != 0:
            failed_part = step.part
            if job.failed_step < 0:
                job.failed_step = i


cdef void* work(void* argument) noexcept nogil:
    """Run jobs in a worker thread, and sleep while there are none; return when the pool closes."""
    cdef Pool* pool = <Pool*>argument
    cdef JobState* job
    pthread_mutex_lock(&pool.mutex)
    while True:
        while pool.waiting.first == NULL and not pool.is_closing:
            pool.idle_count += 1
            pthread_cond_wait(&pool.wake, &pool.mutex)
            pool.idle_count -= 1
        if pool.waiting.first == NULL:
            break
        job = pop_job(&pool.waiting)
        pool.waiting_count -= 1
        pthread_mutex_unlock(&pool.mutex)
        run_job(job)
        pthread_mutex_lock(&pool.mutex)
        if pool.done.first == NULL:
            bell_ring(pool.bell)
        append_job(&pool.done, job)
    pthread_mutex_unlock(&pool.mutex)
    return NULL


cdef class PoolJob:
    """Steps on files, run in order; `error` holds the result afterwards.

    `token` is the caller's; `error` is the first failure, an OSError, or None; `failures` lists
    (part, error, whether it was a sync) of each failed part, counted from 0.
    """

    def __cinit__(self, token):
        self.token = token
        self.state.failed_step = -1
        self.paths = []
        self.files = []
        self.failures = []

    def __dealloc__(self):
        self.let_go()
        free(self.state.steps)

    cdef void let_go(self) noexcept:
        """Release the buffers: nothing is written from them any more."""
        cdef int at
        for at in range(self.state.count):
            if self.state.steps[at].is_held:
                self.state.steps[at].is_held = False
                PyBuffer_Release(&self.state.steps[at].held)

    def begin_part(self) -> None:
        """Begin a part: a failure of its steps ends only the part."""
        self.parts += 1
        self.part = self.parts

    def end_parts(self) -> None:
        """End the parts: the steps that follow run if all parts succeeded."""
        self.part = 0

    def allocate(self, file, int64_t offset, size_t length) -> None:
        """Reserve `length` bytes of space, where the file system can."""
        cdef Step* step = self.add(ALLOCATE, file)
        step.fd = file.fileno()
        step.offset = offset
        step.size = length

    def write(self, file, data, int64_t offset) -> None:
        """Write all of `data`, which must not change until the job is taken."""
        cdef int fd = file.fileno()
        cdef Step* step = self.add(WRITE, file)
        PyObject_GetBuffer(data, &step.held, PyBUF_SIMPLE)
        step.is_held = True
        step.fd = fd
        step.offset = offset
        step.size = <size_t>step.held.len
        step.data = <const char*>step.held.buf

    def write_zeros(self, file, int64_t offset, size_t length) -> None:
        """Write `length` zeros."""
        cdef Step* step = self.add(WRITE_ZEROS, file)
        step.fd = file.fileno()
        step.offset = offset
        step.size = length

    def datasync(self, file) -> None:
        """Sync the data that was written so far."""
        self.add(DATASYNC, file).fd = file.fileno()

    def sync_directory(self, path) -> None:
        """Sync a directory, so that files created, renamed and removed in it are on disk."""
        cdef const char* encoded = self.encoded(path)
        self.add(SYNC_DIRECTORY, path).path = encoded

    def make_directory(self, path) -> None:
        """Create one directory, whose parent exists."""
        cdef const char* encoded = self.encoded(path)
        self.add(MAKE_DIRECTORY, path).path = encoded

    def put_file(self, path, data) -> None:
        """Create the file, or replace its content, and sync it; see `write` for `data`."""
        cdef const char* encoded = self.encoded(path)
        cdef Step* step = self.add(PUT_FILE, path)
        PyObject_GetBuffer(data, &step.held, PyBUF_SIMPLE)
        step.is_held = True
        step.path = encoded
        step.size = <size_t>step.held.len
        step.data = <const char*>step.held.buf

    def rename(self, source, target) -> None:
        """Replace `target`, if there is one."""
        cdef const char* old_path = self.encoded(source)
        cdef const char* new_path = self.encoded(target)
        cdef Step* step = self.add(RENAME, source)
        step.path = old_path
        step.target = new_path

    cdef const char* encoded(self, path) except NULL:
        """Return the path for the system's calls; the job keeps it."""
        cdef bytes encoded = os.fsencode(path)
        self.paths.append(encoded)
        return PyBytes_AS_STRING(encoded)

    def truncate(self, file, int64_t size) -> None:
        """Cut the file to `size` bytes, or extend it by zeros."""
        cdef Step* step = self.add(TRUNCATE, file)
        step.fd = file.fileno()
        step.offset = size

    cdef Step* add(self, int kind, object target) except NULL:
        cdef Step* grown
        cdef int capacity = self.state.capacity
        if self.is_submitted:
            raise ValueError("the job was submitted already")
        if self.state.count == capacity:
            capacity = 4 if capacity == 0 else 2 * capacity
            grown = <Step*>realloc(self.state.steps, capacity * sizeof(Step))
            if grown == NULL:
                raise MemoryError
            self.state.steps = grown
            self.state.capacity = capacity
        self.files.append(target)
        self.state.count += 1
        grown = &self.state.steps[self.state.count - 1]
        grown.kind = kind
        grown.part = self.part
        grown.error = 0
        grown.is_held = False
        grown.written = 0
        return grown

    cdef int finish(self) except -1:
        """Release the buffers of a completed job and set its errors."""
        cdef int at
        self.let_go()
        if self.state.failed_step >= 0:
            self.error = self.error_of(self.state.failed_step)
            for at in range(self.state.failed_step, self.state.count):
                if self.state.steps[at].error and self.state.steps[at].part:
                    self.failures.append(
                        (self.state.steps[at].part - 1, self.error_of(at), self.is_sync(at))
                    )
        self.files = []
        return 0

    cdef object error_of(self, int at):
        cdef Step* step = &self.state.steps[at]
        target = self.files[at]
        path = getattr(target, "path", target)  # a file, or a path
        if step.error < 0:
            return ShortWrite(path, step.size, step.written)
        return OSError(step.error, strerror(step.error).decode("utf-8", "replace"), str(path))

    def is_sync(self, int at) -> bool:
        """Return whether the step with index `at` is a sync that was reached."""
        cdef Step* step = &self.state.steps[at]
        return step.kind == DATASYNC or (step.kind == SYNC_DIRECTORY and step.written != 0)

    @property
    def failed_sync(self) -> bool:
        """Whether the first failed step was a sync, of a file or a directory."""
        return self.state.failed_step >= 0 and self.is_sync(self.state.failed_step)


cdef class CommitPool:
    """A pool of at most `threads` worker threads, with the jobs that they run."""

    def __cinit__(self, int threads):
        cdef int error
        if threads < 1:
            raise ValueError("a pool has at least one thread")
        self.pool = <Pool*>calloc(1, sizeof(Pool))
        if self.pool == NULL:
            raise MemoryError
        self.pool.threads = <pthread_t*>calloc(threads, sizeof(pthread_t))
        error = errno.ENOMEM if self.pool.threads == NULL else bell_open(self.pool.bell)
        if error:
            free(self.pool.threads)
            free(self.pool)
            self.pool = NULL
            raise OSError(error, os.strerror(error))
        self.pool.threads_max = threads
        pthread_mutex_init(&self.pool.mutex, NULL)
        pthread_cond_init(&self.pool.wake, NULL)

    def __dealloc__(self):
        if self.pool == NULL:
            return
        self.join()
        while self.pool.done.first != NULL:
            Py_DECREF(<object>pop_job(&self.pool.done).job)
        self.close_bell()
        pthread_cond_destroy(&self.pool.wake)
        pthread_mutex_destroy(&self.pool.mutex)
        free(self.pool.threads)
        free(self.pool)

    @property
    def thread_count(self) -> int:
        """Threads that were started; 0 before the first job."""
        return self.pool.thread_count

    def fileno(self) -> int:
        """Return the descriptor that is readable while there are completed jobs; -1: closed."""
        return self.pool.bell[0]

    def job(self, token: object = None) -> PoolJob:
        """Return an empty job; `token` is kept in it for the caller."""
        return PoolJob(token)

    def submit(self, PoolJob job not None) -> None:
        """Start the job; `take_completed` returns it when it is done.

        Raises ValueError if the job was submitted before or the pool is closed, or OSError if no
        thread can be started.
        """
        cdef bint needs_thread
        if job.is_submitted or self.pool.is_closing:
            raise ValueError("the job was submitted already" if job.is_submitted
                             else "the pool is closed")
        job.is_submitted = True
        job.state.job = <PyObject*>job
        Py_INCREF(job)
        self.in_flight += 1
        pthread_mutex_lock(&self.pool.mutex)
        append_job(&self.pool.waiting, &job.state)
        self.pool.waiting_count += 1
        needs_thread = (
            self.pool.waiting_count > self.pool.idle_count
            and self.pool.thread_count < self.pool.threads_max
        )
        pthread_cond_signal(&self.pool.wake)
        pthread_mutex_unlock(&self.pool.mutex)
        if needs_thread:
            self.start_thread()

    def take_completed(self) -> list[PoolJob]:
        """Return the completed jobs, in the order in which they ended."""
        cdef JobList done
        cdef PoolJob job
        pthread_mutex_lock(&self.pool.mutex)
        done = self.pool.done
        self.pool.done.first = NULL
        if self.pool.bell[0] >= 0:
            bell_silence(self.pool.bell)
        pthread_mutex_unlock(&self.pool.mutex)
        cdef list taken = []
        while done.first != NULL:
            job = <PoolJob>pop_job(&done).job
            Py_DECREF(job)
            job.finish()
            taken.append(job)
        self.in_flight -= <int>len(taken)
        return taken

    def wait(self, double timeout_s=-1) -> None:
        """Wait until a job is complete, without an event loop; blocks the thread.

        Returns at once if a job is complete or none is in flight, and after `timeout_s` seconds at
        the latest; negative: no limit.
        """
        cdef int timeout_ms = -1 if timeout_s < 0 else <int>(timeout_s * 1000)
        if self.in_flight == 0 or self.pool.bell[0] < 0:  # closed: all jobs are complete
            return
        with nogil:
            bell_wait(self.pool.bell, timeout_ms)

    def watch(self, loop, callback, reactor=None) -> None:
        """Make the event loop, or its reactor, call `callback()` while there are completed jobs."""
        self.unwatch()
        self.loop = loop
        self.reader = loop if reactor is None else reactor
        self.reader.add_reader(self.pool.bell[0], callback)

    def unwatch(self) -> None:
        """Stop the calls that `watch` started."""
        if self.loop is not None and not self.loop.is_closed():
            self.reader.remove_reader(self.pool.bell[0])
        self.loop = self.reader = None

    def close(self) -> None:
        """Wait until all submitted jobs have run, and end the threads; blocks the thread.

        The jobs can still be taken.
        """
        self.unwatch()
        self.join()
        self.close_bell()

    cdef int start_thread(self) except -1:
        cdef int error = worker_start(
            &self.pool.threads[self.pool.thread_count], work, <void*>self.pool
        )
        if error == 0:
            self.pool.thread_count += 1
        elif self.pool.thread_count == 0:
            raise OSError(error, os.strerror(error))
        return 0

    cdef void join(self) noexcept:
        """End the worker threads once all submitted jobs have run."""
        cdef int i
        pthread_mutex_lock(&self.pool.mutex)
        self.pool.is_closing = True
        pthread_cond_broadcast(&self.pool.wake)
        pthread_mutex_unlock(&self.pool.mutex)
        with nogil:
            for i in range(self.pool.thread_count):
                pthread_join(self.pool.threads[i], NULL)
        self.pool.thread_count = 0

    cdef void close_bell(self) noexcept:
        """Close the descriptors; no thread is left that rings them."""
        if self.pool.bell[0] >= 0:
            bell_close(self.pool.bell)
            self.pool.bell[0] = self.pool.bell[1] = -1
