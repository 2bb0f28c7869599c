"""Declarations of poller.h: the kernel's readiness queue (epoll), where there is one."""

cdef extern from "natsd/core/poller.h" nogil:
    enum:
        POLLER_READ
        POLLER_WRITE
        POLLER_HANGUP
        POLLER_BATCH
    const int SEND_FLAGS
    ctypedef struct poller_event:
        void* data
        int what
    int poller_supported()
    int poller_open()
    int poller_add(int poller, int fd, int what, void* data)
    int poller_change(int poller, int fd, int what, void* data)
    int poller_remove(int poller, int fd)
    int poller_ready(int poller, poller_event* ready, int most)
