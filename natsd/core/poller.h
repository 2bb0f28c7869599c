/* The kernel's readiness queue, on systems where an event loop can watch it like a file: epoll on
 * Linux. On other systems poller_supported() is 0, and connections use the event loop's
 * transports. */
#ifndef NATSD_POLLER_H
#define NATSD_POLLER_H

#include <errno.h>
#include <stddef.h>
#include <unistd.h>
#include <sys/socket.h>

#define POLLER_READ 1
#define POLLER_WRITE 2
#define POLLER_HANGUP 4

typedef struct {
    void *data;
    int what;
} poller_event;

#ifdef __linux__
#include <sys/epoll.h>

#define POLLER_BATCH 128
static const int SEND_FLAGS = MSG_NOSIGNAL | MSG_DONTWAIT;

static inline int poller_supported(void) { return 1; }
static inline int poller_open(void) { return epoll_create1(EPOLL_CLOEXEC); }

static inline int poller_control(int poller, int op, int fd, int what, void *data) {
    struct epoll_event event;
    event.events = (what & POLLER_READ ? EPOLLIN | EPOLLRDHUP : 0u) | (what & POLLER_WRITE ? EPOLLOUT : 0u);
    event.data.ptr = data;
    return epoll_ctl(poller, op, fd, &event);
}

static inline int poller_add(int poller, int fd, int what, void *data) {
    return poller_control(poller, EPOLL_CTL_ADD, fd, what, data);
}

static inline int poller_change(int poller, int fd, int what, void *data) {
    return poller_control(poller, EPOLL_CTL_MOD, fd, what, data);
}

static inline int poller_remove(int poller, int fd) {
    struct epoll_event unused;
    return epoll_ctl(poller, EPOLL_CTL_DEL, fd, &unused);
}

/* Fill `ready` with at most `most` sockets that are ready now; return their number, or -1. Does not
 * wait. */
static inline int poller_ready(int poller, poller_event *ready, int most) {
    struct epoll_event events[POLLER_BATCH];
    int n = epoll_wait(poller, events, most < POLLER_BATCH ? most : POLLER_BATCH, 0);
    for (int i = 0; i < n; i++) {
        ready[i].data = events[i].data.ptr;
        ready[i].what = (events[i].events & (EPOLLIN | EPOLLRDHUP) ? POLLER_READ : 0)
                      | (events[i].events & EPOLLOUT ? POLLER_WRITE : 0)
                      | (events[i].events & (EPOLLHUP | EPOLLERR) ? POLLER_HANGUP : 0);
    }
    return n;
}

#else
#define POLLER_BATCH 1
#ifdef MSG_NOSIGNAL
static const int SEND_FLAGS = MSG_NOSIGNAL | MSG_DONTWAIT;
#else
static const int SEND_FLAGS = MSG_DONTWAIT;
#endif

static inline int poller_supported(void) { return 0; }
static inline int poller_open(void) { errno = ENOSYS; return -1; }
static inline int poller_add(int poller, int fd, int what, void *data) { errno = ENOSYS; return -1; }
static inline int poller_change(int poller, int fd, int what, void *data) { errno = ENOSYS; return -1; }
static inline int poller_remove(int poller, int fd) { errno = ENOSYS; return -1; }
static inline int poller_ready(int poller, poller_event *ready, int most) { return 0; }
#endif

#endif
