"""The SubList: the subscriptions of an account, and the recipients of a published message.

    insert, remove ──▶ Interest    the trie: every subscription, by subject      interest.pyx
          │ joined, left
          ▼
    lookup ◀─────────▶ MatchCache  results of recent subjects, at most 1,024     match_cache.pyx
          └──────────▶ MatchResult the immutable result of a lookup              match_result.pyx
    insert, remove ──▶ InterestObservers  routes, push consumers              interest_observers.pyx

Promises
- There is one writer; readers in other threads never crash. Every operation holds the GIL from its
  first step to its last. Destructors (which may run any code and release the GIL) run only before a
  walk or after the last step.
- A result that a caller holds never changes. `result.live` becomes False when the SubList would
  answer differently. Therefore a publisher may keep its last result and compare `live` and the
  subject's bytes instead of a new lookup. Results that were not cached are never live.
- An uncached lookup allocates nothing: it refills the previous uncached result, unless a caller
  still holds that one.
- The SubList holds a reference to each subscription from insert to remove. A subscription is in at
  most one SubList.

Source: the seed "SubList"; nats-server's `Sublist` (server/sublist.go).
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject*)

cdef enum:
    BATCH_PATCHED_MAX = 1024    # a larger batch of removals clears the whole cache instead
    NODES_PER_SLICE = 200       # nodes and queue groups in a slice of `interests`, or one node


class AlreadyListed(ValueError):
    """The inserted subscription is listed in another SubList."""


@cython.final
@cython.no_gc
cdef class SubList:
    """The subscriptions of one account. With `cache` False, match results are not cached."""

    def __cinit__(self, *, bint cache=True):
        self.interest = Interest()
        self.cache = MatchCache()
        self.cache_enabled = cache

    # For the connections

    cdef MatchResult lookup(self, const char* subject, Py_ssize_t length):
        """Return the match result of a published subject; raises MemoryError."""
        cdef uint64_t hash
        cdef CacheEntry* entry
        self.num_matches += 1
        hash = hash_name(subject, length)
        entry = <CacheEntry*> table_find(&self.cache.by_subject, hash, subject, <uint32_t> length)
        if entry != NULL:
            self.num_cache_hits += 1
            entry.hit = True
            return result_of(entry)
        return self._match(subject, length, hash)

    cdef MatchResult _match(self, const char* subject, Py_ssize_t length, uint64_t hash):
        """Return the result of a walk, and cache it if the cache admits the subject."""
        cdef MatchResult result = self._take_scratch()
        cdef int whole = self.interest.find(subject, length)
        if whole < 0:
            raise MemoryError
        if whole and self.cache_enabled and self.cache.admits(hash):
            self.scratch = result
            result = MatchResult.__new__(MatchResult)
            result.fill(subject, length, &self.interest.found)
            self.cache.put(result, hash)
            self._settle()
            return result
        result.fill(subject, length, &self.interest.found)
        self.scratch = result
        return result

    cdef MatchResult _take_scratch(self):
        """Return an empty result that no other code holds.

        This may run destructors, which may do lookups themselves.
        """
        cdef MatchResult result = self.scratch
        self.scratch = None
        if result is None or Py_REFCNT(<PyObject*> result) > 1:
            return MatchResult.__new__(MatchResult)
        result.empty()
        return result

    cdef bint insert_sub(self, Subscription sub) except -1:
        """List a subscription (see `insert`)."""
        if sub.node != NULL:
            if not self.interest.holds(sub):
                raise AlreadyListed(f"{sub!r} is in another SubList")
            return False
        self.interest.insert(sub)
        self.num_inserts += 1
        self.cache.joined(sub)
        self._settle()
        if self.observers is not None:
            self.observers.changed(sub, without(weights_of(sub), sub), weights_of(sub))
        if self.listener is not None:
            self.listener.added(sub)
        return True

    cdef bint remove_sub(self, Subscription sub) except -1:
        """Remove a subscription (see `remove`)."""
        cdef InterestObservers observers = self.observers
        cdef Weights before
        if not self.interest.holds(sub):
            return False
        before = weights_of(sub)
        self._unlist(sub, True)
        self._settle()
        self._forget_scratch()
        if observers is not None:
            observers.changed(sub, before, without(before, sub))
        if self.listener is not None:
            self.listener.removed([sub])
        return True

    cdef void _unlist(self, Subscription sub, bint patch_cache) noexcept:
        """Remove a listed subscription from the trie and, with `patch_cache`, from the cache."""
        if patch_cache:
            self.cache.left(sub)
        self.interest.remove(sub)
        self.num_removes += 1
        Py_DECREF(sub)      # the caller holds a reference too, so no destructor runs here

    cdef void _settle(self) noexcept:
        """Release the results that a change made obsolete; the last step of a change."""
        self.cache.release()

    cdef int _forget_scratch(self) except -1:
        """Empty the scratch result, so that it does not keep removed subscriptions alive."""
        cdef MatchResult idle
        if self.scratch is not None and fanout_of(self.scratch):
            idle = self._take_scratch()
            self.scratch = idle
        return 0

    cdef bint interested(self, const char* subject, Py_ssize_t length) except -1:
        """Return whether a published subject has a subscription; raises MemoryError."""
        cdef CacheEntry* entry = <CacheEntry*> table_find(
            &self.cache.by_subject, hash_name(subject, length), subject, <uint32_t> length
        )
        if entry != NULL:
            return fanout_of(result_of(entry)) > 0
        if self.interest.find(subject, length) < 0:
            raise MemoryError
        return self.interest.found.count > 0

    # For Python

    def insert(self, Subscription sub not None) -> bool:
        """List a subscription; return False if it was listed already.

        Raises InvalidSubject for its subject, AlreadyListed if another SubList lists it, or
        MemoryError.
        """
        return self.insert_sub(sub)

    def remove(self, Subscription sub not None) -> bool:
        """Remove a subscription; return False if this SubList does not list it."""
        return self.remove_sub(sub)

    def remove_batch(self, subs) -> int:
        """Remove those of `subs` that this SubList lists; return their number.

        This is for a connection that closes. Raises TypeError if one is not a Subscription; nothing
        is removed then.
        """
        cdef list batch = list(subs)
        cdef bint patch_cache = len(batch) <= BATCH_PATCHED_MAX
        cdef Subscription sub
        cdef list gone = []     # subscription, total and local weight before, and so on
        cdef InterestObservers observers = self.observers
        cdef Weights before
        cdef list left = None if self.listener is None else []
        cdef int removed = 0
        for item in batch:
            if not isinstance(item, Subscription):
                raise TypeError(f"a Subscription is expected, not {item!r}")
        for sub in batch:
            if self.interest.holds(sub):
                if observers is not None:
                    before = weights_of(sub)
                    gone.append(sub)
                    gone.append(before.total)
                    gone.append(before.local)
                self._unlist(sub, patch_cache)
                removed += 1
                if left is not None:
                    left.append(sub)
        if not patch_cache:
            self.cache.clear()
        self._settle()
        self._forget_scratch()
        for at in range(0, len(gone), 3):
            sub = gone[at]
            before = Weights(total=gone[at + 1], local=gone[at + 2])
            observers.changed(sub, before, without(before, sub))
        if left:
            self.listener.removed(left)
        return removed

    def update_weight(self, Subscription sub not None, int weight) -> None:
        """Set how often a remote queue subscription counts in its group: 0 to WEIGHT_MAX."""
        cdef Weights before
        weight = max(0, min(weight, WEIGHT_MAX))
        if not self.interest.holds(sub):
            sub.weight = weight
            return
        before = weights_of(sub)
        self.interest.reweigh(sub, weight)
        self.cache.left(sub)
        self._settle()
        if self.observers is not None:
            self.observers.changed(sub, before, weights_of(sub))

    def match(self, subject) -> MatchResult:
        """Return the subscriptions that receive a message published to `subject` (str or bytes)."""
        cdef bytes data = wire_bytes(subject)
        return self.lookup(data, len(data))

    def match_all(self, list subjects) -> int:
        """Match all `subjects` (bytes) in a compiled loop, as connections do; return the fan-out.

        The fan-out is the sum of deliveries: one per plain subscription, one per queue group.
        """
        cdef uint64_t total = 0
        cdef bytes subject
        for subject in subjects:
            total += fanout_of(self.lookup(subject, len(subject)))
        return total

    def has_interest(self, subject) -> bool:
        """Return whether a message published to `subject` has a recipient."""
        cdef bytes data = wire_bytes(subject)
        return self.interested(data, len(data))

    def num_interest(self, subject) -> tuple:
        """Return the numbers of plain and of queue subscriptions that match `subject`.

        A remote queue subscription counts once, whatever its weight.
        """
        cdef bytes data = wire_bytes(subject)
        cdef uint32_t at, place
        cdef Node* node
        cdef QueueGroup* group
        cdef uint64_t plain = 0
        cdef uint64_t queue = 0
        if self.interest.find(data, len(data)) < 0:
            raise MemoryError
        for at in range(self.interest.found.count):
            node = self.interest.found.items[at]
            plain += node.plain.count
            for place in range(table_span(&node.groups)):
                group = <QueueGroup*> table_at(&node.groups, place)
                if group != NULL:
                    queue += group.members.count
        return plain, queue

    def reverse_match(self, pattern) -> MatchResult:
        """Return every subscription that has a subject in common with `pattern`."""
        cdef bytes data = wire_bytes(pattern)
        cdef MatchResult result = MatchResult.__new__(MatchResult)
        if self.interest.find_colliding(data, len(data)) < 0:
            raise MemoryError
        result.fill(data, len(data), &self.interest.found)
        return result

    def subscriptions(self, Py_ssize_t first=0, Py_ssize_t most=-1) -> list:
        """Return `most` subscriptions after skipping `first`; `most` below 0: all.

        The order is arbitrary, but stays the same as long as no subscription is added or removed.
        """
        cdef list subs = []
        cdef Walk walk = Walk(steps=NULL, depth=0, capacity=0)
        cdef Node* node = self.interest.root
        if most < 0:
            most = self.interest.count
        try:
            while node != NULL and len(subs) < most:
                first = append_node(subs, node, first, most)
                node = next_node(&walk, node)
        finally:
            free(walk.steps)
        return subs

    def weight(self, subject, queue=None, *, bint local=False) -> int:
        """Return the weight of one interest: how many plain subscriptions, or a group's weight.

        Only subscriptions to exactly this subject count. With `local` those do not of which another
        server told.
        """
        cdef bytes name = wire_bytes(subject)
        cdef bytes group_name
        cdef QueueGroup* group = NULL
        cdef Node* node = node_at(self.interest, name, len(name))
        cdef Weights weights
        if node != NULL and queue is not None:
            group_name = wire_bytes(queue)
            group = <QueueGroup*> table_find(
                &node.groups, hash_name(group_name, len(group_name)), group_name, len(group_name)
            )
        if node == NULL or (queue is not None and group == NULL):
            return 0
        weights = weights_at(node, group)
        return weights.local if local else weights.total

    def interests(self, bytes after not None=b"", *, bint local=False) -> tuple:
        """Return a slice of all interests, and the subject after which the next slice begins.

        The interests are tuples (subject, queue or None, weight), in the order of
        interest_listing.pyx; a slice may be empty. The subject is empty after the last slice. The
        SubList may change between slices: observe it first, then take from the slices and from the
        observer what is told last for each interest. With `local`, weights are local ones.
        """
        cdef list found = []
        cdef uint32_t visited = 0
        cdef Node* last = NULL
        cdef Node* node = node_after(self.interest, after, len(after))
        while node != NULL and visited < NODES_PER_SLICE:
            append_interests(found, node)
            visited += 1 + table_span(&node.groups)
            last = node
            node = following(node)
        after = b"" if node == NULL else path_of(last)
        return rows_of(found, local), after

    def observe(self, callback, *, bint local=False) -> None:
        """Call `callback(subject, queue, before, after)` at each change of an interest's weight.

        With `local`, the weights are those of subscriptions of which no other server told. See
        interest_observers.pyx for what is promised. Begin with `interests`.
        """
        self._observers().observers.append((callback, local))

    def unobserve(self, callback) -> None:
        """Undo one `observe` with that callback, if there is one."""
        cdef Py_ssize_t at
        cdef list observers = [] if self.observers is None else self.observers.observers
        for at in range(len(observers)):
            if observers[at][0] == callback:
                del observers[at]
                break
        self._forget_observers()

    cdef int add_peer(self, InterestPeer peer) except -1:
        """Tell a peer of each change of local interest from now on."""
        self._observers().peers.append(peer)
        return 0

    cdef int remove_peer(self, InterestPeer peer) except -1:
        """Undo `add_peer`, if it was called."""
        if self.observers is not None and peer in self.observers.peers:
            self.observers.peers.remove(peer)
        return self._forget_observers()

    def watch(self, subject, callback, *, queue=None) -> bool:
        """Call `callback(True)` after the first subscription came, with False after the last left.

        Only subscriptions to exactly this subject count: plain ones, or those of the queue group
        `queue`. Returns whether there is one now. The callback must not change the SubList.
        """
        cdef bytes name = watch_name(wire_bytes(subject), wire_bytes(queue or b""))
        self._observers().watches.setdefault(name, []).append(callback)
        return self.weight(subject, queue or None) > 0

    def unwatch(self, subject, callback, *, queue=None) -> None:
        """Undo one `watch` with the same arguments, if there is one."""
        cdef bytes name = watch_name(wire_bytes(subject), wire_bytes(queue or b""))
        cdef list watching = [] if self.observers is None else self.observers.watches.get(name, [])
        if callback in watching:
            watching.remove(callback)
            if not watching:
                del self.observers.watches[name]
        self._forget_observers()

    def listen(self, listener) -> None:
        """Call `listener.added(sub)` and `listener.removed(subs)` after each change; None: nobody.

        The listener learns of every subscription, where observers learn of interests. It must not
        change this SubList. `clear` tells it nothing.
        """
        self.listener = listener

    cdef InterestObservers _observers(self):
        """Return the observers, new ones if there are none."""
        if self.observers is None:
            self.observers = InterestObservers()
        return self.observers

    cdef int _forget_observers(self) except -1:
        """Let changes cost nothing again if nobody observes them any more."""
        if self.observers is not None and self.observers.is_empty():
            self.observers = None
        return 0

    def clear(self) -> None:
        """Remove every subscription."""
        cdef InterestObservers observers = self.observers
        cdef list gone = []
        cdef Subscription sub
        cdef Weights before
        cdef Node* node = NULL if observers is None else following(self.interest.root)
        while node != NULL:
            append_interests(gone, node)
            node = following(node)
        self.num_removes += self.interest.count
        self.cache.clear()
        self.interest.clear()
        self._settle()
        self._forget_scratch()
        for at in range(0, len(gone), 3):
            sub = gone[at]
            before = Weights(total=gone[at + 1], local=gone[at + 2])
            observers.changed(sub, before, Weights(total=0, local=0))

    def __len__(self):
        return self.interest.count

    def __contains__(self, sub):
        return isinstance(sub, Subscription) and self.interest.holds(sub)

    @property
    def count(self) -> int:
        """Listed subscriptions."""
        return self.interest.count

    @property
    def num_cache(self) -> int:
        """Cached match results."""
        return self.cache.count

    def stats(self):
        """Return the statistics as SubListStats."""
        cdef uint32_t place
        cdef uint32_t fanout
        cdef uint32_t max_fanout = 0
        cdef uint64_t total_fanout = 0
        for place in range(self.cache.count):
            fanout = fanout_of(result_of(self.cache.entries[place]))
            total_fanout += fanout
            max_fanout = max(max_fanout, fanout)
        from natsd.core.sublist_stats import SubListStats

        return SubListStats(
            num_subscriptions=self.interest.count,
            num_cache=self.cache.count,
            num_inserts=self.num_inserts,
            num_removes=self.num_removes,
            num_matches=self.num_matches,
            num_cache_hits=self.num_cache_hits,
            max_fanout=max_fanout,
            total_fanout=total_fanout,
        )


cdef Py_ssize_t append_node(list subs, Node* node, Py_ssize_t first, Py_ssize_t most) except -1:
    """Append the subscriptions of a node, until `subs` has `most`; skip the `first` ones.

    Returns how many must still be skipped at later nodes.
    """
    cdef uint32_t place
    cdef QueueGroup* group
    first = append_subscriptions(subs, &node.plain, first, most)
    for place in range(table_span(&node.groups)):
        group = <QueueGroup*> table_at(&node.groups, place)
        if group != NULL:
            first = append_subscriptions(subs, &group.members, first, most)
    return first


cdef Py_ssize_t append_subscriptions(
    list subs, Members* members, Py_ssize_t first, Py_ssize_t most
) except -1:
    """Append the subscriptions of an array like `append_node`."""
    cdef Py_ssize_t place
    for place in range(first, members.count):
        if len(subs) == most:
            break
        subs.append(<Subscription> members_of(members)[place])
    return max(first - <Py_ssize_t> members.count, 0)


cdef struct Step:
    Node* node
    uint32_t entered        # next child: a place in `children`, then star, then tail

cdef struct Walk:           # stack of the nodes from the root down to the current one
    Step* steps
    uint32_t depth
    uint32_t capacity


cdef Node* next_node(Walk* walk, Node* node) except? NULL:
    """Return the node after `node`, depth first; NULL: `node` was the last one."""
    cdef Step* step
    cdef Node* child
    enter(walk, node)
    while walk.depth:
        step = &walk.steps[walk.depth - 1]
        while step.entered < table_span(&step.node.children) + 2:
            child = child_at(step.node, step.entered)
            step.entered += 1
            if child != NULL:
                return child
        walk.depth -= 1
    return NULL


cdef int enter(Walk* walk, Node* node) except -1:
    """Push a node onto the stack; raises MemoryError."""
    cdef Step* steps
    cdef uint32_t capacity = walk.capacity * 2 or 16
    if walk.depth == walk.capacity:
        steps = <Step*> realloc(walk.steps, capacity * sizeof(Step))
        if steps == NULL:
            raise MemoryError
        walk.steps = steps
        walk.capacity = capacity
    walk.steps[walk.depth] = Step(node, 0)
    walk.depth += 1
    return 0


cdef inline Node* child_at(Node* node, uint32_t place) noexcept:
    """Return the child at a place: literal children, then star, then tail; NULL: none there."""
    cdef uint32_t span = table_span(&node.children)
    if place < span:
        return <Node*> table_at(&node.children, place)
    return node.star if place == span else node.tail
