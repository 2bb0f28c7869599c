"""The cache of what a session's permissions said about subjects.

- At most VERDICTS_MAX verdicts are kept for publishing, and as many for subscribing; the oldest one
  makes room for a new one.
- A session without permissions has no cache, and its messages do not come here
  (`slow_publish_path`, `slow_delivery_path`).

Source: nats-server's `pubAllowedFullCheck`, `checkDenySub` and `maxPermCacheSize`
(server/client.go).
"""

cdef enum:
    VERDICTS_MAX = 128


cdef class Verdicts:
    """The verdicts of one session's permissions."""

    def __init__(self, permissions not None):
        self.permissions = permissions
        self.publish = {}
        self.subscribe = {}

    cdef bint may_publish(self, const char* subject, Py_ssize_t length) except -1:
        """Return whether the session may publish to a subject."""
        cdef bytes name = subject[:length]
        verdict = self.publish.get(name)
        if verdict is None:
            verdict = bool(self.permissions.may_publish(text_of(name)))
            keep_verdict(self.publish, name, verdict)
        return verdict

    cdef bint may_subscribe(self, bytes subject, bytes queue) except -1:
        """Return whether the session may subscribe to a subject, and receive messages on it."""
        cdef bytes name = subject if queue is None else subject + b" " + queue
        verdict = self.subscribe.get(name)
        if verdict is None:
            verdict = bool(self.permissions.may_subscribe(
                text_of(subject), None if queue is None else text_of(queue)
            ))
            keep_verdict(self.subscribe, name, verdict)
        return verdict


cdef int keep_verdict(dict verdicts, bytes name, object verdict) except -1:
    """Keep a new verdict in place of the oldest one if there are VERDICTS_MAX."""
    if len(verdicts) >= VERDICTS_MAX:
        del verdicts[next(iter(verdicts))]
    verdicts[name] = verdict
    return 0
