"""SubList: who receives a published message. The one door to the three parts behind it.

    insert, remove ──▶ Interest    the trie: every subscription, by subject      interest.pyx
          │ joined, left
          ▼
    lookup ◀─────────▶ MatchCache  results of recent subjects, at most 1,024     match_cache.pyx
          └──────────▶ MatchResult what a lookup answers: immutable              match_result.pyx

Promises
- One writer; readers in other threads never crash. Everything here holds the GIL from its first
  step to its last, and destructors (which may run any code, and hand the GIL on) run only before a
  walk or after the last step.
- A result that is held never changes. `result.live` turns false when the SubList would answer
  otherwise, so a publisher may keep its last result and compare `live` and the subject's bytes
  instead of asking again. Results that did not come into the cache are never live.
- An uncached lookup allocates nothing: it refills the previous uncached result, unless someone
  still holds it.
- Subscriptions are held by reference from insert to remove. A subscription is in one SubList at a
  time.

Seed: 000. Reference: §3.6, §12.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc

from natsd.core.interest cimport Members, Node, QueueGroup, members_of
from natsd.core.interest_watches cimport InterestWatches, is_alone, watch_name
from natsd.core.match_cache cimport CacheEntry, result_of
from natsd.core.name_table cimport hash_name, table_at, table_find, table_span
from natsd.core.subject cimport wire_bytes
from natsd.core.subscription cimport WEIGHT_MAX

from natsd.core.subject import InvalidSubject  # no-cython-lint: offered here too
from natsd.core.sublist_stats import SubListStats

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject*)

cdef enum:
    BATCH_PATCHED_MAX = 1024    # a larger batch of removals drops the whole cache instead


class AlreadyListed(ValueError):
    """A subscription of another SubList was inserted."""


@cython.final
@cython.no_gc
cdef class SubList:

    def __cinit__(self, *, bint cache=True):
        self.interest = Interest()
        self.cache = MatchCache()
        self.cache_enabled = cache

    # For the connections

    cdef MatchResult lookup(self, const char* subject, Py_ssize_t length):
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
        """An empty result that nobody else knows. May run destructors, which may look up in their
        turn."""
        cdef MatchResult result = self.scratch
        self.scratch = None
        if result is None or Py_REFCNT(<PyObject*> result) > 1:
            return MatchResult.__new__(MatchResult)
        result.empty()
        return result

    cdef bint insert_sub(self, Subscription sub) except -1:
        if sub.node != NULL:
            if not self.interest.holds(sub):
                raise AlreadyListed(f"{sub!r} is in another SubList")
            return False
        self.interest.insert(sub)
        self.num_inserts += 1
        self.cache.joined(sub)
        self._settle()
        if self.watches is not None and is_alone(sub):
            self.watches.changed(sub, True)
        return True

    cdef bint remove_sub(self, Subscription sub) except -1:
        cdef InterestWatches watches = self.watches
        cdef bint was_last
        if not self.interest.holds(sub):
            return False
        was_last = watches is not None and is_alone(sub)
        self._unlist(sub, True)
        self._settle()
        self._forget_scratch()
        if was_last:
            watches.changed(sub, False)
        return True

    cdef void _unlist(self, Subscription sub, bint patch_cache) noexcept:
        if patch_cache:
            self.cache.left(sub)
        self.interest.remove(sub)
        self.num_removes += 1
        Py_DECREF(sub)      # the caller holds it: no destructor runs here

    cdef void _settle(self) noexcept:
        """The last step of a change: let go of what it made obsolete."""
        self.cache.release()

    cdef int _forget_scratch(self) except -1:
        """What left the SubList is not kept alive by a result that nobody looks at."""
        cdef MatchResult idle
        if self.scratch is not None and fanout_of(self.scratch):
            idle = self._take_scratch()
            self.scratch = idle
        return 0

    cdef bint interested(self, const char* subject, Py_ssize_t length) except -1:
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
        """List `sub`; false when it was listed already."""
        return self.insert_sub(sub)

    def remove(self, Subscription sub not None) -> bool:
        """Take `sub` out; false when it is not in this SubList."""
        return self.remove_sub(sub)

    def remove_batch(self, subs) -> int:
        """Take out everything of `subs` that is here, as for a closing connection; how many that
        were."""
        cdef list batch = list(subs)
        cdef bint patch_cache = len(batch) <= BATCH_PATCHED_MAX
        cdef Subscription sub
        cdef list last = []
        cdef InterestWatches watches = self.watches
        cdef int removed = 0
        for item in batch:
            if not isinstance(item, Subscription):
                raise TypeError(f"a Subscription is expected, not {item!r}")
        for sub in batch:
            if self.interest.holds(sub):
                if watches is not None and is_alone(sub):
                    last.append(sub)
                self._unlist(sub, patch_cache)
                removed += 1
        if not patch_cache:
            self.cache.clear()
        self._settle()
        self._forget_scratch()
        for sub in last:
            watches.changed(sub, False)
        return removed

    def update_weight(self, Subscription sub not None, int weight) -> None:
        """A remote queue group has more or fewer members now."""
        sub.weight = max(0, min(weight, WEIGHT_MAX))
        if self.interest.holds(sub):
            self.cache.left(sub)
            self._settle()

    def match(self, subject) -> MatchResult:
        cdef bytes data = wire_bytes(subject)
        return self.lookup(data, len(data))

    def match_all(self, list subjects) -> int:
        """Match each of `subjects` (bytes) in one compiled loop, as connections do; the sum of
        their fan-outs."""
        cdef uint64_t total = 0
        cdef bytes subject
        for subject in subjects:
            total += fanout_of(self.lookup(subject, len(subject)))
        return total

    def has_interest(self, subject) -> bool:
        cdef bytes data = wire_bytes(subject)
        return self.interested(data, len(data))

    def num_interest(self, subject) -> tuple:
        """How many plain and how many queue subscriptions; a remote one counts once, whatever its
        weight."""
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
        """Every subscription that could receive a message that `pattern`, wildcards and all,
        would."""
        cdef bytes data = wire_bytes(pattern)
        cdef MatchResult result = MatchResult.__new__(MatchResult)
        if self.interest.find_colliding(data, len(data)) < 0:
            raise MemoryError
        result.fill(data, len(data), &self.interest.found)
        return result

    def subscriptions(self, Py_ssize_t first=0, Py_ssize_t most=-1) -> list:
        """All of them, or `most` behind the `first` ones, in no order, but in the same one as long
        as none comes or goes. Those that are passed over are not looked at."""
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

    def watch(self, subject, callback, *, queue=None) -> bool:
        """Have `callback(bool)` called when the first subscription to exactly this subject (in that
        queue group, or in none) comes and when the last one goes; whether there is one now. It must
        neither raise nor change the SubList."""
        cdef bytes name = wire_bytes(subject)
        if self.watches is None:
            self.watches = InterestWatches()
        self.watches.add(watch_name(name, wire_bytes(queue or b"")), callback)
        listed = self.match(name)
        members = listed.queues.get(queue, ()) if queue else listed.plain
        return any(sub.subject_bytes == name for sub in members)

    def unwatch(self, subject, callback, *, queue=None) -> None:
        """Undo one `watch`, if there was one."""
        if self.watches is not None and self.watches.drop(
            watch_name(wire_bytes(subject), wire_bytes(queue or b"")), callback
        ):
            self.watches = None

    def clear(self) -> None:
        """Let go of every subscription."""
        self.num_removes += self.interest.count
        self.cache.clear()
        self.interest.clear()
        self._settle()
        self._forget_scratch()
        if self.watches is not None:
            self.watches.all_gone()

    def __len__(self):
        return self.interest.count

    def __contains__(self, sub):
        return isinstance(sub, Subscription) and self.interest.holds(sub)

    @property
    def count(self) -> int:
        return self.interest.count

    @property
    def num_cache(self) -> int:
        return self.cache.count

    def stats(self):
        cdef uint32_t place
        cdef uint32_t fanout
        cdef uint32_t max_fanout = 0
        cdef uint64_t total_fanout = 0
        for place in range(self.cache.count):
            fanout = fanout_of(result_of(self.cache.entries[place]))
            total_fanout += fanout
            max_fanout = max(max_fanout, fanout)
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


cdef inline uint32_t fanout_of(MatchResult result):
    return result.plain_count + result.queue_count


cdef Py_ssize_t append_node(list subs, Node* node, Py_ssize_t first, Py_ssize_t most) except -1:
    """List what `node` lists; how many are still to be passed over behind it."""
    cdef uint32_t place
    cdef QueueGroup* group
    first = append_members(subs, &node.plain, first, most)
    for place in range(table_span(&node.groups)):
        group = <QueueGroup*> table_at(&node.groups, place)
        if group != NULL:
            first = append_members(subs, &group.members, first, most)
    return first


cdef Py_ssize_t append_members(
    list subs, Members* members, Py_ssize_t first, Py_ssize_t most
) except -1:
    cdef Py_ssize_t place
    for place in range(first, members.count):
        if len(subs) == most:
            break
        subs.append(<Subscription> members_of(members)[place])
    return max(first - <Py_ssize_t> members.count, 0)


cdef struct Step:
    Node* node
    uint32_t entered        # of its children's places, then its star and its tail

cdef struct Walk:           # from the root down to where it is
    Step* steps
    uint32_t depth
    uint32_t capacity


cdef Node* next_node(Walk* walk, Node* node) except? NULL:
    """The node behind this one, children first; NULL: it was the last one."""
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
    cdef uint32_t span = table_span(&node.children)
    if place < span:
        return <Node*> table_at(&node.children, place)
    return node.star if place == span else node.tail
