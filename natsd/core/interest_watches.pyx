"""Who wants to know when somebody begins or ceases to listen on a subject: literal subject, and
queue group or none.

Promise
- Interest here is a subscription to exactly that subject, plain or in exactly that group: a
  listener on `>` starts no push consumer. That is nats-server's rule (Sublist notifications).
- A SubList without watches pays one comparison a change; with them, one lookup for each first and
  each last subscription to a subject.
- A callback gets True or False after the change is complete. It must not change the SubList; what
  it raises is reported and disturbs nobody.
"""

from natsd.core.interest cimport Node, QueueGroup
from natsd.core.subscription cimport Subscription


cdef bytes watch_name(bytes subject, bytes queue):
    """As subject and queue stand in a subscription's text."""
    return subject + b"\0" + queue


cdef bint is_alone(Subscription sub) noexcept:
    """A listed subscription is the only one to its subject, or in its group there."""
    if sub.group != NULL:
        return (<QueueGroup*> sub.group).members.count == 1
    return (<Node*> sub.node).plain.count == 1


cdef class InterestWatches:

    def __cinit__(self):
        self.callbacks = {}

    cdef int add(self, bytes name, object callback) except -1:
        self.callbacks.setdefault(name, []).append(callback)
        return 0

    cdef bint drop(self, bytes name, object callback) except -1:
        cdef list watching = self.callbacks.get(name, [])
        if callback in watching:
            watching.remove(callback)
        if not watching:
            self.callbacks.pop(name, None)
        return not self.callbacks

    cdef void changed(self, Subscription sub, bint is_there) noexcept:
        watching = self.callbacks.get(sub.text[:sub.subject_len + 1 + sub.queue_len])
        if watching is not None:
            for callback in tuple(watching):
                callback(is_there)

    cdef void all_gone(self) noexcept:
        for watching in tuple(self.callbacks.values()):
            for callback in tuple(watching):
                callback(False)
