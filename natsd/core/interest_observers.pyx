"""Observers of interest: callbacks for subscriptions that come and go.

    observe   every interest of the SubList    callback(subject, queue, before, after)
    add_peer  the same, in compiled code       InterestPeer.interest_changed
    watch     one interest                     callback(is_there)

`before` and `after` are weights (see interest_listing.pyx): the first subscription of an interest
has `before` 0, the last `after` 0. `queue` is None for plain subscriptions.

Promise
- A SubList without observers pays one comparison per change.
- Only subscriptions to exactly a subject count: a subscription to `>` starts no push consumer. That
  is nats-server's rule (`Sublist.RegisterNotification`).
- A callback is called after the change is complete, in the order of the changes: `before` is what
  the callback was told last for that interest. It must not change the SubList. If it raises, the
  exception is reported (`sys.unraisablehook`), the change remains, and the others are called.
- An observer of local interest is told nothing of subscriptions of which other servers told. So a
  route passes on the interest of this server, and no other's.
"""


cdef bytes watch_name(bytes subject, bytes queue):
    """Return the key of a watch: subject and queue as they stand in a subscription's text."""
    return subject + b"\0" + queue


cdef void call_observer(object callback, tuple arguments) noexcept:
    """Call an observer; an exception is reported and goes no further."""
    callback(*arguments)


cdef void tell_peer(
    InterestPeer peer, Subscription sub, int64_t before, int64_t after
) noexcept:
    """Tell a peer; an exception is reported and goes no further."""
    peer.interest_changed(sub, before, after)


cdef class InterestPeer(Sink):
    """A sink that stands for another server, which is told of the interest of this one."""

    cdef int interest_changed(self, Subscription sub, int64_t before, int64_t after) except -1:
        """Pass on that the local weight of the interest of `sub` has changed."""
        return 0


cdef class InterestObservers:
    """The observers and watches of one SubList."""

    def __cinit__(self):
        self.watches = {}
        self.observers = []
        self.peers = []

    cdef bint is_empty(self) noexcept:
        """Return whether there is neither an observer nor a watch nor a peer."""
        return not self.watches and not self.observers and not self.peers

    cdef void changed(self, Subscription sub, Weights before, Weights after) noexcept:
        """Tell of a change of the interest of `sub`."""
        cdef bytes subject, queue
        if self.peers and before.local != after.local:
            for peer in tuple(self.peers):
                tell_peer(peer, sub, before.local, after.local)
        if (before.total == 0) != (after.total == 0):
            watching = self.watches.get(sub.text[:sub.subject_len + 1 + sub.queue_len])
            for callback in tuple(watching or ()):
                call_observer(callback, (after.total != 0,))
        if self.observers:
            subject, queue = sub.subject_bytes, sub.queue_bytes
            for callback, local in tuple(self.observers):
                if not local and before.total != after.total:
                    call_observer(callback, (subject, queue, before.total, after.total))
                elif local and before.local != after.local:
                    call_observer(callback, (subject, queue, before.local, after.local))
