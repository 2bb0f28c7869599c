"""The subscription trie: one level per subject token, made of C structs, without Python objects.

    root ──children──▶ [orders]──children──▶ [new]      plain ▶ sub, sub        SUB orders.new
      │                    ├──────star─────▶ [*]        groups ▶ "w": sub, sub  SUB orders.* w
      │                    └──────tail─────▶ [>]        plain ▶ sub             SUB orders.>
      └──tail──▶ [>]  plain ▶ sub                                               SUB >

A level consists of the `children`, `star` and `tail` of the node above it. A subscription stores
its node, its queue group and its index there, and a node stores its parent. Therefore removal needs
no lookup: the last subscription of the array takes the free place, then empty nodes are pruned
upwards.

Invariants
- Every node but the root lists a subscription or has a child: empty branches are pruned at once.
- The trie owns one reference to each subscription it lists; `remove` passes it to the caller.
- `sub.node` is NULL if and only if no trie lists the subscription.
- No walk recurses (a subject of 4,096 bytes has about 2,000 levels), calls Python or releases the
  GIL. A trie runs one walk at a time, because all walks share its node lists.
- A walk only finds nodes, each at most once; the caller decides what to do with them.

Source: the seed "SubList" (TrieLevel, TrieNode). A reverse match returns every subscription that
shares a subject with the pattern, as nats-server's `ReverseMatch` documents; nats-server itself
answers differently in some cases in which wildcards meet wildcards.
"""

cimport cython
from cpython.list cimport PyList_GET_SIZE, PyList_SET_ITEM
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy


# Arrays of subscriptions

cdef int members_add(Members* members, Subscription sub) noexcept:
    """Append a subscription and set its index; -1: out of memory, and nothing changed."""
    cdef PyObject** items
    cdef uint32_t capacity
    if members.count == (members.capacity or 1):
        capacity = members.count * 2
        items = <PyObject**> malloc(capacity * sizeof(PyObject*))
        if items == NULL:
            return -1
        memcpy(items, members_of(members), members.count * sizeof(PyObject*))
        if members.capacity:
            free(members.items)
        members.items = items
        members.capacity = capacity
    sub.index = members.count
    members_of(members)[members.count] = <PyObject*> sub
    members.count += 1
    return 0


cdef void members_shrink(Members* members) noexcept:
    """Halve the capacity; for one subscription or none, free the array."""
    cdef PyObject** items = members.items
    cdef uint32_t capacity = members.capacity // 2
    if members.count == 1:
        members.items = <PyObject**> items[0]
        members.capacity = 0
        free(items)
    elif members.count == 0:
        members.items = NULL
        members.capacity = 0
        free(items)
    else:
        items = <PyObject**> realloc(items, capacity * sizeof(PyObject*))
        if items != NULL:
            members.items = items
            members.capacity = capacity


cdef void members_remove(Members* members, Subscription sub) noexcept:
    """Remove a subscription; the last one takes its place."""
    cdef PyObject** items = members_of(members)
    cdef Subscription moved
    assert items[sub.index] == <PyObject*> sub
    members.count -= 1
    if sub.index != members.count:
        moved = <Subscription> items[members.count]
        moved.index = sub.index
        items[sub.index] = <PyObject*> moved
    if members.capacity and members.count <= members.capacity // 4:
        members_shrink(members)


cdef void members_free(Members* members) noexcept:
    if members.capacity:
        free(members.items)


# Nodes

cdef Node* new_node(Node* parent, Token* token) noexcept:
    """Return a new node that its parent does not link yet; NULL: out of memory."""
    cdef Node* node = <Node*> malloc(sizeof(Node) + token.length)
    if node == NULL:
        return NULL
    node[0] = Node(
        token=Named(hash=token.hash, length=token.length, name_at=sizeof(Node)),
        children=NameTable(NULL, 0, 0), star=NULL, tail=NULL,
        plain=Members(NULL, 0, 0), groups=NameTable(NULL, 0, 0), parent=parent, untold=0,
    )
    memcpy(<char*> node + sizeof(Node), token.start, token.length)
    NATSD_LIVE(live.nodes, 1)
    return node


cdef inline Node* child_of(Node* node, Token* token) noexcept nogil:
    """Return the child for a token of a subscription's subject; NULL: there is none."""
    if is_star(token.start, token.length):
        return node.star
    if is_tail(token.start, token.length):
        return node.tail
    return <Node*> table_find(&node.children, token.hash, token.start, token.length)


cdef Node* add_child(Node* parent, Token* token) noexcept:
    """Return a new child for a token that has none; NULL: out of memory."""
    cdef Node* node = new_node(parent, token)
    if node == NULL:
        return NULL
    if is_star(token.start, token.length):
        parent.star = node
    elif is_tail(token.start, token.length):
        parent.tail = node
    elif table_add(&parent.children, &node.token) < 0:
        free_node(node)
        return NULL
    return node


cdef void free_node(Node* node) noexcept:
    """Free a node, its queue groups and its arrays, but not its children."""
    cdef uint32_t place
    cdef QueueGroup* group
    for place in range(table_span(&node.groups)):
        group = <QueueGroup*> table_at(&node.groups, place)
        if group != NULL:
            free_group(group)
    table_free(&node.groups)
    table_free(&node.children)
    members_free(&node.plain)
    free(node)
    NATSD_LIVE(live.nodes, -1)


cdef inline bint lists_any(Node* node) noexcept nogil:
    """Return whether a node lists a subscription."""
    return node.plain.count > 0 or node.groups.count > 0


cdef void prune(Node* node) noexcept:
    """Free `node` if it is empty, and each ancestor that becomes empty by that."""
    cdef Node* parent
    while (
        node.parent != NULL and not lists_any(node)
        and node.children.count == 0 and node.star == NULL and node.tail == NULL
    ):
        parent = node.parent
        if node == parent.star:
            parent.star = NULL
        elif node == parent.tail:
            parent.tail = NULL
        else:
            table_remove(&parent.children, &node.token)
        free_node(node)
        node = parent


# Queue groups

cdef QueueGroup* new_group(Node* node, Subscription sub) noexcept:
    """Return an empty group with the queue name of `sub`; NULL: out of memory."""
    cdef QueueGroup* group = <QueueGroup*> malloc(sizeof(QueueGroup) + sub.queue_len)
    if group == NULL:
        return NULL
    group[0] = QueueGroup(
        name=Named(
            hash=hash_name(queue_of(sub), sub.queue_len),
            length=sub.queue_len,
            name_at=sizeof(QueueGroup),
        ),
        members=Members(NULL, 0, 0), node=node, weight=0, untold=0,
    )
    memcpy(<char*> group + sizeof(QueueGroup), queue_of(sub), sub.queue_len)
    NATSD_LIVE(live.queue_groups, 1)
    return group


cdef void free_group(QueueGroup* group) noexcept:
    members_free(&group.members)
    free(group)
    NATSD_LIVE(live.queue_groups, -1)


cdef QueueGroup* group_for(Node* node, Subscription sub) noexcept:
    """Return the queue group of `sub` at `node`, and add it if needed; NULL: out of memory."""
    cdef QueueGroup* group = <QueueGroup*> table_find(
        &node.groups, hash_name(queue_of(sub), sub.queue_len), queue_of(sub), sub.queue_len
    )
    if group != NULL:
        return group
    group = new_group(node, sub)
    if group != NULL and table_add(&node.groups, &group.name) < 0:
        free_group(group)
        return NULL
    return group


cdef void drop_empty_group(QueueGroup* group) noexcept:
    """Remove and free a group that has no member."""
    if group.members.count == 0:
        table_remove(&group.node.groups, &group.name)
        free_group(group)


cdef int list_at(Node* node, Subscription sub) noexcept:
    """List a subscription at the node of its subject; -1: out of memory, and nothing changed."""
    cdef QueueGroup* group = NULL
    if sub.queue_len:
        group = group_for(node, sub)
        if group == NULL:
            return -1
        if members_add(&group.members, sub) < 0:
            drop_empty_group(group)
            return -1
    elif members_add(&node.plain, sub) < 0:
        return -1
    sub.node = node
    sub.group = group
    weigh(sub, 1)
    return 0


cdef inline void weigh(Subscription sub, int sign) noexcept:
    """Add a listed subscription to the weights of its node or group; `sign` -1: subtract it."""
    cdef QueueGroup* group = <QueueGroup*> sub.group
    if group != NULL:
        group.weight += sign * sub.weight
        if is_untold(sub):
            group.untold += sign * sub.weight
    elif is_untold(sub):
        (<Node*> sub.node).untold += sign


cdef Node* push_children(Node* node, Node* pending) noexcept:
    """Push the children of `node` onto the list of nodes to free; return its new head.

    The list is linked through the nodes' `parent` fields.
    """
    cdef uint32_t place
    cdef Node* child
    for place in range(table_span(&node.children)):
        child = <Node*> table_at(&node.children, place)
        if child != NULL:
            child.parent = pending
            pending = child
    if node.star != NULL:
        node.star.parent = pending
        pending = node.star
    if node.tail != NULL:
        node.tail.parent = pending
        pending = node.tail
    return pending


cdef void free_tree(Node* root, list orphans) noexcept:
    """Free a trie's nodes and move its references to subscriptions into `orphans`.

    `orphans` must hold one None for each subscription. Nothing here allocates, so it cannot fail.
    """
    cdef Node* pending = root
    cdef Node* node
    cdef QueueGroup* group
    cdef uint32_t place
    cdef Py_ssize_t count = 0
    while pending != NULL:
        node = pending
        pending = push_children(node, node.parent)
        count = unlist(&node.plain, orphans, count)
        for place in range(table_span(&node.groups)):
            group = <QueueGroup*> table_at(&node.groups, place)
            if group != NULL:
                count = unlist(&group.members, orphans, count)
        free_node(node)
    assert count == PyList_GET_SIZE(orphans)


cdef Py_ssize_t unlist(Members* members, list orphans, Py_ssize_t count) noexcept:
    """Move the subscriptions of `members` into `orphans`, behind the first `count` entries.

    Returns the number of entries that are filled afterwards.
    """
    cdef uint32_t place
    cdef Subscription sub
    for place in range(members.count):
        sub = <Subscription> members_of(members)[place]
        sub.node = sub.group = NULL
        Py_DECREF(None)                         # PyList_SET_ITEM does not release the old entry
        PyList_SET_ITEM(orphans, count, sub)    # the list takes over the trie's reference
        count += 1
    return count


cdef int grow(NodeList* nodes) noexcept nogil:
    """Double the capacity; -1: out of memory."""
    cdef uint32_t capacity = nodes.capacity * 2 or 16
    cdef Node** items = <Node**> realloc(nodes.items, capacity * sizeof(Node*))
    if items == NULL:
        return -1
    nodes.items = items
    nodes.capacity = capacity
    return 0


cdef inline int push(NodeList* nodes, Node* node) noexcept nogil:
    """Append a node; -1: out of memory."""
    if nodes.count == nodes.capacity and grow(nodes) < 0:
        return -1
    nodes.items[nodes.count] = node
    nodes.count += 1
    return 0


# Walks descend level by level, in all matching branches at once

cdef inline int descend(
    NodeList* here, NodeList* below, NodeList* found, Token* token
) noexcept nogil:
    """Go from the nodes `here` to the nodes `below` that match one token of a published subject.

    Nodes for `>` match the whole rest and go to `found`. With several nodes, each memory access is
    prefetched for all of them first, so that the processor waits for memory once. -1: out of
    memory.
    """
    cdef uint32_t place
    cdef Node* node
    cdef Node* child
    below.count = 0
    if here.count > 1:
        for place in range(here.count):
            prefetch_slot(&here.items[place].children, token.hash)
        for place in range(here.count):
            prefetch_item(&here.items[place].children, token.hash)
    for place in range(here.count):
        node = here.items[place]
        if node.tail != NULL and push(found, node.tail) < 0:
            return -1
        if node.star != NULL and push(below, node.star) < 0:
            return -1
        child = <Node*> table_find(&node.children, token.hash, token.start, token.length)
        if child != NULL and push(below, child) < 0:
            return -1
    return 0


cdef int descend_colliding(NodeList* here, NodeList* below, NodeList* found, Token* token) noexcept:
    """Go one level down like `descend`, for one token of a pattern: a literal or `*`."""
    cdef uint32_t place, nth
    cdef Node* node
    cdef Node* child
    if not is_star(token.start, token.length):
        return descend(here, below, found, token)
    below.count = 0
    for place in range(here.count):
        node = here.items[place]
        if node.tail != NULL and push(found, node.tail) < 0:
            return -1
        if node.star != NULL and push(below, node.star) < 0:
            return -1
        for nth in range(table_span(&node.children)):
            child = <Node*> table_at(&node.children, nth)
            if child != NULL and push(below, child) < 0:
                return -1
    return 0


@cython.final
cdef class Interest:
    """The subscriptions of one SubList, by subject."""

    def __cinit__(self):
        self.root = new_root()
        if self.root == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.root != NULL:
            self.clear()
            free_node(self.root)
        free_tokens(&self.tokens)
        free(self.found.items)
        free(self.here.items)
        free(self.below.items)

    cdef int insert(self, Subscription sub) except -1:
        """List a subscription that no trie lists yet, and leave its subject in `tokens`.

        Raises InvalidSubject, or MemoryError; the trie is then unchanged.
        """
        cdef Node* node
        cdef Node* child
        cdef uint32_t at
        assert sub.node == NULL
        self._split_pattern(sub)
        node = self.root
        for at in range(self.tokens.count):
            child = child_of(node, &self.tokens.items[at])
            if child == NULL:
                child = add_child(node, &self.tokens.items[at])
            if child == NULL:
                prune(node)
                raise MemoryError
            node = child
        if list_at(node, sub) < 0:
            prune(node)
            raise MemoryError
        Py_INCREF(sub)
        self.count += 1
        return 0

    cdef int _split_pattern(self, Subscription sub) except -1:
        """Split the subscription's subject into `tokens`; raises InvalidSubject."""
        cdef int valid = split_tokens(&self.tokens, sub.text, sub.subject_len)
        cdef Token* token
        cdef uint32_t at
        if valid < 0:
            raise MemoryError
        for at in range(self.tokens.count):
            token = &self.tokens.items[at]
            if is_tail(token.start, token.length) and at + 1 < self.tokens.count:
                valid = 0
        if not valid:
            raise InvalidSubject(f"invalid subject {sub.subject!r}")
        return 0

    cdef bint holds(self, Subscription sub) noexcept:
        """Return whether this trie lists the subscription."""
        cdef Node* node = <Node*> sub.node
        while node != NULL:
            if node == self.root:
                return True
            node = node.parent
        return False

    cdef void remove(self, Subscription sub) noexcept:
        """Remove a subscription that this trie lists; the caller takes over the reference."""
        cdef Node* node = <Node*> sub.node
        cdef QueueGroup* group = <QueueGroup*> sub.group
        weigh(sub, -1)
        if group != NULL:
            members_remove(&group.members, sub)
            drop_empty_group(group)
        else:
            members_remove(&node.plain, sub)
        sub.node = sub.group = NULL
        self.count -= 1
        prune(node)

    cdef void reweigh(self, Subscription sub, int32_t weight) noexcept:
        """Change the weight of a subscription that this trie lists."""
        weigh(sub, -1)
        sub.weight = weight
        weigh(sub, 1)

    cdef int find(self, const char* subject, Py_ssize_t length) noexcept nogil:
        """Fill `found` with the nodes that match a published subject (see interest.pxd)."""
        cdef NodeList* here = &self.here
        cdef NodeList* below = &self.below
        cdef uint32_t at
        cdef int whole = self._start_walk(subject, length)
        if whole <= 0:
            return whole
        for at in range(self.tokens.count):
            if descend(here, below, &self.found, &self.tokens.items[at]) < 0:
                return -1
            here, below = below, here
        return self._arrive(here)

    cdef int find_colliding(self, const char* subject, Py_ssize_t length) noexcept:
        """Fill `found` with the nodes that share a subject with a pattern (see interest.pxd)."""
        cdef NodeList* here = &self.here
        cdef NodeList* below = &self.below
        cdef uint32_t at, place
        cdef Token* token
        cdef int whole = self._start_walk(subject, length)
        if whole <= 0:
            return whole
        for at in range(self.tokens.count):
            token = &self.tokens.items[at]
            if is_tail(token.start, token.length):
                for place in range(here.count):
                    if self._arrive_below(here.items[place]) < 0:
                        return -1
                return 1
            if descend_colliding(here, below, &self.found, token) < 0:
                return -1
            here, below = below, here
        return self._arrive(here)

    cdef int _start_walk(self, const char* subject, Py_ssize_t length) noexcept nogil:
        """Split the subject and start at the root; 1: ready; 0: an empty token; -1: no memory."""
        cdef int whole = split_tokens(&self.tokens, subject, length)
        self.found.count = self.here.count = 0
        if whole > 0 and push(&self.here, self.root) < 0:
            return -1
        return whole

    cdef int _arrive(self, NodeList* here) noexcept nogil:
        """End a walk: add the nodes `here` that list subscriptions to `found`. Return 1 or -1."""
        cdef uint32_t place
        cdef Node* node
        for place in range(here.count):
            node = here.items[place]
            if lists_any(node) and push(&self.found, node) < 0:
                return -1
        return 1

    cdef int _arrive_below(self, Node* top) noexcept:
        """Add all descendants of `top` to `found`, breadth first. Return 1 or -1.

        `found` serves as the queue as well. Some of the nodes may list no subscription.
        """
        cdef uint32_t at = self.found.count
        cdef uint32_t place
        cdef Node* child
        while True:
            for place in range(table_span(&top.children)):
                child = <Node*> table_at(&top.children, place)
                if child != NULL and push(&self.found, child) < 0:
                    return -1
            if top.star != NULL and push(&self.found, top.star) < 0:
                return -1
            if top.tail != NULL and push(&self.found, top.tail) < 0:
                return -1
            if at == self.found.count:
                return 1
            top = self.found.items[at]
            at += 1

    cdef int clear(self) except -1:
        """Remove all subscriptions. Raises MemoryError; the trie is then unchanged.

        The references are released last: destructors may use this trie, which is then empty.
        """
        cdef list orphans = [None] * self.count     # allocated first: freeing nodes must not fail
        cdef Node* old = self.root
        cdef Node* root = new_root()
        if root == NULL:
            raise MemoryError
        self.root = root
        self.count = 0
        free_tree(old, orphans)
        orphans.clear()
        return 0


cdef Node* new_root() noexcept:
    """Return the root of an empty trie; NULL: out of memory."""
    cdef Token none
    none.start = b""
    none.hash = 0
    none.length = 0
    return new_node(NULL, &none)
