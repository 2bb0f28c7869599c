/* The parts of a commit that differ between systems: its system calls, and how a worker thread
 * wakes the event loop. Every step returns 0 or an errno; none of them touches Python. */
#ifndef NATSD_COMMIT_STEPS_H
#define NATSD_COMMIT_STEPS_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/eventfd.h>
#endif

#define WORKER_STACK_BYTES (256 * 1024)

/* Repeat an interrupted call: workers block signals, but a debugger may still interrupt. */
#define AGAIN(result, call) \
    do { (result) = (call); } while ((result) < 0 && errno == EINTR)

/* Reserve space. Where the file system cannot, nothing is reserved: the write finds its space. */
static inline int step_allocate(int fd, int64_t offset, int64_t length) {
#ifdef __linux__
    int error;
    do { error = posix_fallocate(fd, offset, length); } while (error == EINTR);
    return error == EOPNOTSUPP || error == ENOSYS || error == EINVAL || error == ENODEV ? 0 : error;
#else
    return 0;
#endif
}

/* Write once. A short write shows as *written < n with no error. */
static inline int step_write(int fd, const char *data, size_t n, int64_t offset, size_t *written) {
    ssize_t result;
    AGAIN(result, pwrite(fd, data, n, offset));
    *written = result < 0 ? 0 : (size_t)result;
    return result < 0 ? errno : 0;
}

/* Write n zeros. *written < n with no error: a write was short. */
static inline int step_write_zeros(int fd, size_t n, int64_t offset, size_t *written) {
    static const char zeros[64 * 1024];
    size_t piece, done;
    int error;
    *written = 0;
    do {
        piece = n - *written < sizeof zeros ? n - *written : sizeof zeros;
        error = step_write(fd, zeros, piece, offset + (int64_t)*written, &done);
        *written += done;
    } while (error == 0 && done == piece && *written < n);
    return error;
}

static inline int step_sync(int fd) {
    int result;
#ifdef __APPLE__
    AGAIN(result, fcntl(fd, F_FULLFSYNC)); /* its fsync leaves bytes in the drive's cache */
#else
    AGAIN(result, fsync(fd));
#endif
    return result < 0 ? errno : 0;
}

static inline int step_datasync(int fd) {
#ifdef __linux__
    int result;
    AGAIN(result, fdatasync(fd));
    return result < 0 ? errno : 0;
#else
    return step_sync(fd);
#endif
}

/* Sync a directory. *tried is 1 if the sync was reached, 0 if no descriptor could be opened. */
static inline int step_sync_directory(const char *path, size_t *tried) {
    int error, fd;
    AGAIN(fd, open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    *tried = fd >= 0;
    if (fd < 0) return errno;
    error = step_sync(fd);
    close(fd);
    return error;
}

static inline int step_truncate(int fd, int64_t size) {
    int result;
    AGAIN(result, ftruncate(fd, size));
    return result < 0 ? errno : 0;
}

static inline int step_make_directory(const char *path, unsigned mode) {
    return mkdir(path, (mode_t)mode) < 0 ? errno : 0;
}

/* Create a file, or empty it, write it once and sync it. *written: see step_write. */
static inline int step_put_file(
    const char *path, unsigned mode, const char *data, size_t n, size_t *written
) {
    int error, fd;
    *written = 0;
    AGAIN(fd, open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, (mode_t)mode));
    if (fd < 0) return errno;
    error = step_write(fd, data, n, 0, written);
    if (error == 0 && *written == n) error = step_sync(fd);
    close(fd);
    return error;
}

static inline int step_rename(const char *source, const char *target) {
    return rename(source, target) < 0 ? errno : 0;
}

/* A bell: readable after it was rung, until it is silenced. ends[0] is watched, ends[1] is rung. */
static inline int bell_open(int ends[2]) {
#ifdef __linux__
    ends[0] = ends[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return ends[0] < 0 ? errno : 0;
#else
    if (pipe(ends) < 0) return errno;
    for (int i = 0; i < 2; i++) {
        fcntl(ends[i], F_SETFD, FD_CLOEXEC);
        fcntl(ends[i], F_SETFL, O_NONBLOCK);
    }
    return 0;
#endif
}

static inline void bell_ring(int ends[2]) {
    uint64_t one = 1; /* a full pipe is readable anyway */
    ssize_t result;
    AGAIN(result, write(ends[1], &one, sizeof one));
}

static inline void bell_silence(int ends[2]) {
    uint64_t count[8];
    ssize_t result;
    AGAIN(result, read(ends[0], count, sizeof count));
}

static inline void bell_close(int ends[2]) {
    close(ends[0]);
    if (ends[1] != ends[0]) close(ends[1]);
}

static inline void bell_wait(int ends[2], int timeout_ms) {
    struct pollfd watched = {ends[0], POLLIN, 0};
    poll(&watched, 1, timeout_ms);
}

/* Start a thread that receives no signals: they belong to the main thread. */
static inline int worker_start(pthread_t *thread, void *(*work)(void *), void *argument) {
    sigset_t all, before;
    pthread_attr_t attributes;
    int error;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, WORKER_STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(thread, &attributes, work, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

#endif
