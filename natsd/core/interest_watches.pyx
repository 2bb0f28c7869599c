"""Watches of interest: callbacks for the first and the last subscription to a subject.

Promise
- A watch is for one literal subject, and for plain subscriptions or for one queue group. Only
  subscriptions to exactly that subject count: a subscription to `>` starts no push consumer. That
  is nats-server's rule (`Sublist.RegisterNotification`).
- A SubList without watches pays one comparison per change. With watches it pays one lookup for each
  first and each last subscription to a subject.
- A callback gets True or False after the change is complete. It must not change the SubList. If it
  raises, the exception is reported, the change remains, and later callbacks of it are skipped.
"""


cdef bytes watch_name(bytes subject, bytes queue):
    """Return the key of a watch: subject and queue as they stand in a subscription's text."""
    return subject + b"\0" + queue


cdef bint is_alone(Subscription sub) noexcept:
    """Return whether a listed subscription is the only one to its subject, or in its group."""
    if sub.group != NULL:
        return (<QueueGroup*> sub.group).members.count == 1
    return (<Node*> sub.node).plain.count == 1


cdef class InterestWatches:
    """The watches of one SubList."""

    def __cinit__(self):
        self.callbacks = {}

    cdef int add(self, bytes name, object callback) except -1:
        """Add a watch with the key `watch_name`."""
        self.callbacks.setdefault(name, []).append(callback)
        return 0

    cdef bint drop(self, bytes name, object callback) except -1:
        """Remove a watch once, if it exists; return whether no watch of any name is left."""
        cdef list watching = self.callbacks.get(name, [])
        if callback in watching:
            watching.remove(callback)
        if not watching:
            self.callbacks.pop(name, None)
        return not self.callbacks

    cdef void changed(self, Subscription sub, bint is_there) noexcept:
        """Call the watches of `sub`: it is the first (True), or was the last (False)."""
        watching = self.callbacks.get(sub.text[:sub.subject_len + 1 + sub.queue_len])
        if watching is not None:
            for callback in tuple(watching):
                callback(is_there)

    cdef void all_gone(self) noexcept:
        """Call every watch with False: the SubList was cleared."""
        for watching in tuple(self.callbacks.values()):
            for callback in tuple(watching):
                callback(False)
