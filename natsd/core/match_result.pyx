"""The match result: the subscriptions that receive one published subject. Immutable once returned.

    MatchResult                               SubArray (owners: 2, used: 3)
      subject, length, live                   ┌─────┬─────┬─────┬─────┐
      plain: count = 2 ─────────────────────▶ │ sub │ sub │ sub │     │
      remote, of other servers ─▶ another     └─────┴─────┴─────┴─────┘
      queue_groups ─▶ QueueResult, …
                        members, remote ─▶ two others
    its successor: plain: count = 3 ──────────▶ the same SubArray

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
from libc.string cimport memcpy, memset


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


cdef int make_room(SubSlice* slice, uint64_t more) except -1:
    """Make room for `more` subscriptions behind those of a slice. Raises MemoryError."""
    if more:
        slice.array = checked(with_room(slice.array, slice.count, more))
        slice.subs = items_of(slice.array)
    return 0


cdef void add(SubSlice* slice, Subscription sub, uint64_t copies) noexcept:
    """Append a subscription `copies` times to a slice with room."""
    while copies:
        append(slice.array, sub)
        copies -= 1
    slice.count = 0 if slice.array == NULL else slice.array.used


cdef int append_members(
    SubSlice* here, SubSlice* remote, Members* members, bint has_remote, bint weighted
) except -1:
    """Append members of this server to `here`, others to `remote`. Raises MemoryError.

    With `weighted` each is appended as often as its weight says.
    """
    cdef PyObject** items = members_of(members)
    cdef Subscription sub
    cdef uint32_t place
    cdef uint64_t all = 0
    cdef uint64_t others = 0
    for place in range(members.count if weighted or has_remote else 0):
        sub = <Subscription> items[place]
        all += sub.weight if weighted else 1
        if sub.is_remote:
            others += sub.weight if weighted else 1
    make_room(here, all - others if weighted or has_remote else members.count)
    make_room(remote, others)
    for place in range(members.count):
        sub = <Subscription> items[place]
        add(remote if has_remote and sub.is_remote else here, sub, sub.weight if weighted else 1)
    return 0


cdef int share(SubSlice* slice, SubSlice* other) noexcept:
    """Let an empty slice list the subscriptions of another one, whose array it shares."""
    if other.count:
        slice[0] = other[0]
        slice.array.owners += 1
    return 0


cdef void empty_slice(SubSlice* slice) noexcept:
    """Remove the subscriptions of a slice, and keep an array that may be used again."""
    slice.count = 0
    slice.array = emptied(slice.array)
    slice.subs = NULL if slice.array == NULL else items_of(slice.array)


cdef list listed(SubSlice* slice):
    return [<Subscription> slice.subs[place] for place in range(slice.count)]


@cython.final
cdef class MatchResult:
    """The plain subscriptions and queue groups that receive one published subject."""

    def __cinit__(self):
        NATSD_LIVE(live.match_results, 1)

    def __dealloc__(self):
        cdef uint32_t place
        NATSD_LIVE(live.match_results, -1)
        for place in range(self.queue_capacity):
            let_go(self.queue_groups[place].members.array)
            let_go(self.queue_groups[place].remote.array)
        free(self.queue_groups)
        let_go(self.plain_local.array)
        let_go(self.plain_remote.array)
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
        cdef Node* node
        assert fanout_of(self) == 0
        self._keep_subject(subject, length)
        for place in range(nodes.count):
            plain_total += nodes.items[place].plain.count - nodes.items[place].untold
            group_total += nodes.items[place].groups.count
        make_room(&self.plain_local, plain_total)
        for place in range(nodes.count):
            node = nodes.items[place]
            append_members(
                &self.plain_local, &self.plain_remote, &node.plain, node.untold > 0, False
            )
        self.has_remote = self.plain_remote.count > 0
        if group_total:
            self._merge_groups(nodes, group_total)
        return 0

    cdef void empty(self) noexcept:
        """Remove all subscriptions but keep the memory for reuse.

        This runs destructors, which may run any code.
        """
        cdef uint32_t place
        cdef uint32_t groups = self.queue_count
        self.live = self.has_remote = False
        self.queue_count = 0
        for place in range(groups):
            empty_slice(&self.queue_groups[place].members)
            empty_slice(&self.queue_groups[place].remote)
        empty_slice(&self.plain_local)
        empty_slice(&self.plain_remote)

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
        cdef QueueResult* into
        if group.weight == 0:
            return 0
        into = self._group_named(group, index, span)
        append_members(&into.members, &into.remote, &group.members, group.untold > 0, True)
        self._name_group(into)
        return 0

    cdef void _name_group(self, QueueResult* group) noexcept:
        """Let the name of a group point into the text of a member that the result lists."""
        cdef SubSlice* members = &group.members if group.members.count else &group.remote
        group.name = queue_of(<Subscription> members.subs[0])
        if group.remote.count:
            self.has_remote = True

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
        group.hash = hash
        group.name_len = name_len
        self.queue_count += 1
        return group

    cdef int _reserve_groups(self, uint32_t capacity) except -1:
        """Make room for `capacity` queue groups. Raises MemoryError."""
        cdef uint32_t more = capacity - self.queue_capacity
        cdef QueueResult* groups = <QueueResult*> realloc(
            self.queue_groups, capacity * sizeof(QueueResult)
        )
        if groups == NULL:
            raise MemoryError
        self.queue_groups = groups
        memset(groups + self.queue_capacity, 0, more * sizeof(QueueResult))
        self.queue_capacity = capacity
        return 0

    cdef MatchResult extended(self, Subscription sub):
        """Return a new result that also lists `sub`; None: there are too many queue groups."""
        cdef MatchResult result
        cdef SubSlice* into
        if sub.queue_len and self.queue_count >= PATCHED_GROUPS_MAX:
            return None
        result = MatchResult.__new__(MatchResult)
        result._keep_subject(self.subject, self.subject_len)
        result._share(self)
        if sub.queue_len:
            result._join_group(sub)
        else:
            into = &result.plain_remote if sub.is_remote else &result.plain_local
            make_room(into, 1)
            add(into, sub, 1)
            result.has_remote = result.has_remote or sub.is_remote
        return result

    cdef int _share(self, MatchResult other) except -1:
        """Make this new result list the subscriptions of `other`, and share its arrays."""
        cdef uint32_t place
        cdef QueueResult* group
        self.has_remote = other.has_remote
        share(&self.plain_local, &other.plain_local)
        share(&self.plain_remote, &other.plain_remote)
        if other.queue_count:
            self._reserve_groups(other.queue_count)
        for place in range(other.queue_count):
            group = self._add_group(
                other.queue_groups[place].hash, other.queue_groups[place].name_len
            )
            group.name = other.queue_groups[place].name
            share(&group.members, &other.queue_groups[place].members)
            share(&group.remote, &other.queue_groups[place].remote)
        return 0

    cdef int _join_group(self, Subscription sub) except -1:
        """Add a queue subscription to the group of its name, as often as its weight says."""
        cdef uint64_t hash = hash_name(queue_of(sub), sub.queue_len)
        cdef QueueResult* into = NULL
        cdef SubSlice* members
        cdef uint32_t place
        if sub.weight == 0:
            return 0
        for place in range(self.queue_count):
            if self.queue_groups[place].hash == hash and is_called(
                &self.queue_groups[place], queue_of(sub), sub.queue_len
            ):
                into = &self.queue_groups[place]
        if into == NULL:
            into = self._add_group(hash, sub.queue_len)
        members = &into.remote if sub.is_remote else &into.members
        make_room(members, sub.weight)
        add(members, sub, sub.weight)
        self._name_group(into)
        return 0

    def __len__(self):
        """Return the deliveries per message: one per plain subscription, one per queue group."""
        return fanout_of(self)

    def __repr__(self):
        who = f"{self.plain_local.count + self.plain_remote.count} plain, {self.queue_count} groups"
        return f"<MatchResult {self.subject_text!r}: {who}>"

    @property
    def subject_text(self) -> str:
        """The published subject."""
        return wire_text(self.subject, self.subject_len)

    @property
    def plain(self) -> tuple:
        """The plain subscriptions, those of other servers last."""
        return tuple(listed(&self.plain_local) + listed(&self.plain_remote))

    @property
    def queues(self) -> dict:
        """Queue name to its members, each as often as its weight says; those of others last."""
        cdef dict queues = {}
        cdef uint32_t at
        cdef QueueResult* group
        for at in range(self.queue_count):
            group = &self.queue_groups[at]
            queues[wire_text(group.name, group.name_len)] = tuple(
                listed(&group.members) + listed(&group.remote)
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
