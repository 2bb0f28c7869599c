"""The match result: the subscriptions that receive one published subject. Immutable once returned.

    MatchResult                               SubArray (owners: 2, used: 3)
      subject, length, live                   ┌─────┬─────┬─────┬─────┐
      plain_subs, plain_count = 2 ──────────▶ │ sub │ sub │ sub │     │
      queue_groups ─▶ QueueResult, …          └─────┴─────┴─────┴─────┘
                        name, members, count ──▶ another SubArray
    its successor: plain_count = 3 ───────────▶ the same SubArray

A result owns a share of its arrays, and an array owns references to its subscriptions. Therefore
the holder of a result can deliver through it, whatever happens to the SubList. Arrays only grow:
for a new subscription, the new result appends to the array that it shares with the old result, and
the old result still sees its own prefix only. So 100,000 subscriptions to one busy subject cost
100,000 appends, not 100,000 copies.

Groups of the same name at several nodes are merged. Up to `LINEAR_GROUPS_MAX` groups are compared
one by one by hash; more groups use an index, so that thousands of queue names do not cost quadratic
time.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy


cdef enum:
    LINEAR_GROUPS_MAX = 16
    ARRAY_CAPACITY_MAX = 1 << 28
    KEPT_CAPACITY_MAX = 1024    # an emptied result keeps arrays up to this capacity for reuse


# Arrays that several results share

cdef inline PyObject** items_of(SubArray* array) noexcept nogil:
    """Return the references of an array."""
    return <PyObject**> (array + 1)


cdef SubArray* new_array(uint32_t capacity) noexcept:
    """Return an empty array with one owner; NULL: out of memory."""
    cdef SubArray* array = <SubArray*> malloc(sizeof(SubArray) + capacity * sizeof(PyObject*))
    if array != NULL:
        array[0] = SubArray(owners=1, used=0, capacity=capacity, reserved=0)
        NATSD_LIVE(live.result_arrays, 1)
    return array


cdef inline void append(SubArray* array, Subscription sub) noexcept:
    """Append a subscription to an array with room, and take a reference to it."""
    assert array.used < array.capacity
    Py_INCREF(sub)
    items_of(array)[array.used] = <PyObject*> sub
    array.used += 1


cdef void let_go(SubArray* array) noexcept:
    """Give up one share of an array (NULL: do nothing).

    The last share releases the subscriptions; their destructors may run any code.
    """
    cdef uint32_t place
    if array == NULL:
        return
    array.owners -= 1
    if array.owners:
        return
    for place in range(array.used):
        Py_DECREF(<object> items_of(array)[place])
    free(array)
    NATSD_LIVE(live.result_arrays, -1)


cdef SubArray* with_room(SubArray* array, uint32_t used, uint64_t more) noexcept:
    """Return an array that starts with the first `used` entries of `array` and has room for `more`.

    Takes over the caller's share of `array`. NULL: out of memory, and the caller keeps its share.
    """
    cdef SubArray* larger
    cdef uint32_t place
    if used + more > ARRAY_CAPACITY_MAX:
        return NULL
    if array != NULL and array.used == used and array.capacity - used >= more:
        return array
    larger = new_array(<uint32_t> max(used + more, 2 * <uint64_t> used))
    if larger == NULL:
        return NULL
    for place in range(used):
        append(larger, <Subscription> items_of(array)[place])
    let_go(array)
    return larger


cdef void append_members(SubArray* array, Members* members, bint weighted) noexcept:
    """Append all members to an array with room; `weighted`: each as often as its weight says."""
    cdef PyObject** items = members_of(members)
    cdef Subscription sub
    cdef uint32_t place
    cdef int _copy
    for place in range(members.count):
        sub = <Subscription> items[place]
        if not weighted:
            append(array, sub)
        else:
            for _copy in range(sub.weight):
                append(array, sub)


cdef uint64_t total_weight(Members* members) noexcept:
    """Return the sum of the members' weights."""
    cdef PyObject** items = members_of(members)
    cdef uint32_t place
    cdef uint64_t total = 0
    for place in range(members.count):
        total += (<Subscription> items[place]).weight
    return total


@cython.final
cdef class MatchResult:
    """The plain subscriptions and queue groups that receive one published subject."""

    def __cinit__(self):
        NATSD_LIVE(live.match_results, 1)

    def __dealloc__(self):
        cdef uint32_t place
        NATSD_LIVE(live.match_results, -1)
        for place in range(self.queue_capacity):
            let_go(self.queue_groups[place].array)
        free(self.queue_groups)
        let_go(self.plain_array)
        free(self.subject)

    def __init__(self):
        raise TypeError("a MatchResult comes from SubList.match")

    cdef int fill(
        self, const char* subject, Py_ssize_t length, NodeList* nodes
    ) except -1:
        """Fill an empty result with the subscriptions that `nodes` list.

        Raises MemoryError; the result must then be discarded.
        """
        cdef uint32_t place
        cdef uint64_t plain_total = 0
        cdef uint32_t group_total = 0
        assert self.plain_count == 0 and self.queue_count == 0
        self._keep_subject(subject, length)
        for place in range(nodes.count):
            plain_total += nodes.items[place].plain.count
            group_total += nodes.items[place].groups.count
        if plain_total:
            self.plain_array = checked(with_room(self.plain_array, 0, plain_total))
            for place in range(nodes.count):
                append_members(self.plain_array, &nodes.items[place].plain, False)
            self._see_plain()
        if group_total:
            self._merge_groups(nodes, group_total)
        return 0

    cdef void empty(self) noexcept:
        """Remove all subscriptions but keep the memory for reuse.

        This runs destructors, which may run any code.
        """
        cdef uint32_t place
        self.live = False
        self.plain_count = 0
        self.plain_subs = NULL
        for place in range(self.queue_count):
            self.queue_groups[place].count = 0
        for place in range(self.queue_count):
            self.queue_groups[place].array = emptied(self.queue_groups[place].array)
        self.queue_count = 0
        self.plain_array = emptied(self.plain_array)

    cdef int _keep_subject(self, const char* subject, Py_ssize_t length) except -1:
        """Copy the subject into the result. Raises MemoryError."""
        cdef char* room
        if self.subject == NULL or self.subject_capacity < length:
            room = <char*> realloc(self.subject, length + 1)
            if room == NULL:
                raise MemoryError
            self.subject = room
            self.subject_capacity = <uint32_t> length
        memcpy(self.subject, subject, length)
        self.subject_len = length
        return 0

    cdef void _see_plain(self) noexcept:
        """Set `plain_subs` and `plain_count` to the whole `plain_array`."""
        self.plain_subs = items_of(self.plain_array)
        self.plain_count = self.plain_array.used

    cdef int _merge_groups(self, NodeList* nodes, uint32_t group_total) except -1:
        """Add the queue groups of all nodes, merged by name; `group_total` counts them unmerged."""
        cdef uint32_t* index = NULL
        cdef uint32_t span = 0
        cdef uint32_t at, place
        cdef QueueGroup* group
        if group_total > LINEAR_GROUPS_MAX:
            span = power_of_two(2 * group_total)
            index = <uint32_t*> calloc(span, sizeof(uint32_t))
            if index == NULL:
                raise MemoryError
        try:
            for at in range(nodes.count):
                for place in range(table_span(&nodes.items[at].groups)):
                    group = <QueueGroup*> table_at(&nodes.items[at].groups, place)
                    if group != NULL:
                        self._merge_group(group, index, span)
        finally:
            free(index)
        return 0

    cdef int _merge_group(self, QueueGroup* group, uint32_t* index, uint32_t span) except -1:
        """Add the members of one node's queue group to the result's group of that name."""
        cdef uint64_t weight = total_weight(&group.members)
        cdef QueueResult* into
        cdef SubArray* array
        if weight == 0:
            return 0
        into = self._group_named(group, index, span)
        array = checked(with_room(into.array, into.count, weight))
        append_members(array, &group.members, True)
        into.array = array
        into.members = items_of(array)
        into.count = array.used
        into.name = queue_of(<Subscription> into.members[0])
        return 0

    cdef QueueResult* _group_named(
        self, QueueGroup* group, uint32_t* index, uint32_t span
    ) except NULL:
        """Return the result's group of the same name, and add it if needed.

        `index` is a hash table of `span` slots with group numbers from 1 (0: free), or NULL for a
        linear search.
        """
        cdef const char* name = name_of(&group.name)
        cdef QueueResult* into
        cdef uint32_t place
        if index == NULL:
            for place in range(self.queue_count):
                into = &self.queue_groups[place]
                if into.hash == group.name.hash and is_called(into, name, group.name.length):
                    return into
            return self._add_group(group.name.hash, group.name.length)
        place = group.name.hash & (span - 1)
        while index[place]:
            into = &self.queue_groups[index[place] - 1]
            if into.hash == group.name.hash and is_called(into, name, group.name.length):
                return into
            place = (place + 1) & (span - 1)
        into = self._add_group(group.name.hash, group.name.length)
        index[place] = self.queue_count
        return into

    cdef QueueResult* _add_group(self, uint64_t hash, uint32_t name_len) except NULL:
        """Add a group without members, which the caller must fill; its old array is reused."""
        cdef QueueResult* group
        if self.queue_count == self.queue_capacity:
            self._reserve_groups(max(2 * self.queue_capacity, 1))
        group = &self.queue_groups[self.queue_count]
        group.count = 0
        group.hash = hash
        group.name_len = name_len
        self.queue_count += 1
        return group

    cdef int _reserve_groups(self, uint32_t capacity) except -1:
        """Make room for `capacity` queue groups. Raises MemoryError."""
        cdef uint32_t place
        cdef QueueResult* groups = <QueueResult*> realloc(
            self.queue_groups, capacity * sizeof(QueueResult)
        )
        if groups == NULL:
            raise MemoryError
        self.queue_groups = groups
        for place in range(self.queue_capacity, capacity):
            groups[place] = QueueResult(NULL, 0, 0, NULL, 0, NULL)
        self.queue_capacity = capacity
        return 0

    cdef MatchResult extended(self, Subscription sub):
        """Return a new result that also lists `sub`; None: there are too many queue groups."""
        cdef MatchResult result
        if sub.queue_len and self.queue_count >= PATCHED_GROUPS_MAX:
            return None
        result = MatchResult.__new__(MatchResult)
        result._keep_subject(self.subject, self.subject_len)
        result._share(self)
        if sub.queue_len:
            result._join_group(sub)
        else:
            result.plain_array = checked(with_room(result.plain_array, self.plain_count, 1))
            append(result.plain_array, sub)
            result._see_plain()
        return result

    cdef int _share(self, MatchResult other) except -1:
        """Make this new result list the subscriptions of `other`, and share its arrays."""
        cdef uint32_t place
        if other.plain_count:
            self.plain_array = other.plain_array
            self.plain_array.owners += 1
            self.plain_subs = other.plain_subs
            self.plain_count = other.plain_count
        if other.queue_count:
            self._reserve_groups(other.queue_count)
        for place in range(other.queue_count):
            self.queue_groups[place] = other.queue_groups[place]
            self.queue_groups[place].array.owners += 1
        self.queue_count = other.queue_count
        return 0

    cdef int _join_group(self, Subscription sub) except -1:
        """Add a queue subscription to the group of its name, as often as its weight says."""
        cdef uint64_t hash = hash_name(queue_of(sub), sub.queue_len)
        cdef QueueResult* into = NULL
        cdef uint32_t place
        cdef int _copy
        if sub.weight == 0:
            return 0
        for place in range(self.queue_count):
            if self.queue_groups[place].hash == hash and is_called(
                &self.queue_groups[place], queue_of(sub), sub.queue_len
            ):
                into = &self.queue_groups[place]
        if into == NULL:
            into = self._add_group(hash, sub.queue_len)
        into.array = checked(with_room(into.array, into.count, sub.weight))
        for _copy in range(sub.weight):
            append(into.array, sub)
        into.members = items_of(into.array)
        into.count = into.array.used
        into.name = queue_of(<Subscription> into.members[0])
        return 0

    def __len__(self):
        """Return the deliveries per message: one per plain subscription, one per queue group."""
        return self.plain_count + self.queue_count

    def __repr__(self):
        who = f"{self.plain_count} plain, {self.queue_count} groups"
        return f"<MatchResult {self.subject_text!r}: {who}>"

    @property
    def subject_text(self) -> str:
        """The published subject."""
        return wire_text(self.subject, self.subject_len)

    @property
    def plain(self) -> tuple:
        """The plain subscriptions."""
        return tuple([<Subscription> self.plain_subs[place] for place in range(self.plain_count)])

    @property
    def queues(self) -> dict:
        """Queue name to its members; a remote member is listed as often as its weight says."""
        cdef dict queues = {}
        cdef uint32_t at
        cdef QueueResult* group
        for at in range(self.queue_count):
            group = &self.queue_groups[at]
            queues[wire_text(group.name, group.name_len)] = tuple(
                [<Subscription> group.members[place] for place in range(group.count)]
            )
        return queues


cdef inline bint is_called(QueueResult* group, const char* name, uint32_t length) noexcept:
    """Return whether a group has that name."""
    return group.name_len == length and natsd_same(group.name, name, length)


cdef SubArray* checked(SubArray* array) except NULL:
    """Return `array`; raises MemoryError if it is NULL."""
    if array == NULL:
        raise MemoryError
    return array


cdef SubArray* emptied(SubArray* array) noexcept:
    """Release the subscriptions of an array and return it for reuse.

    NULL: the array is shared or larger than KEPT_CAPACITY_MAX, and the caller's share is gone.
    """
    cdef uint32_t used
    if array == NULL or array.owners > 1 or array.capacity > KEPT_CAPACITY_MAX:
        let_go(array)
        return NULL
    used = array.used
    while used:
        used -= 1
        array.used = used
        Py_DECREF(<object> items_of(array)[used])
    return array


cdef uint32_t power_of_two(uint32_t least) noexcept:
    """Return the smallest power of two that is at least `least`."""
    cdef uint32_t power = 1
    while power < least:
        power *= 2
    return power
