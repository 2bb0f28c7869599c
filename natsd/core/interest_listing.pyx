"""The interest of a SubList, listed in slices between which it may change.

An interest is a subject with its plain subscriptions, or a subject with one of its queue groups.
Its weight is the number of the subscriptions, or the weights of the group's members together.

    a node before its children; children with literal tokens by the reversed bits of their hash,
    then `*`, then `>`

Promise
- The order depends on the tokens alone, not on the tables that hold them. So a listing goes on
  behind any subject, even one that has gone meanwhile, and lists each interest that stays from its
  beginning to its end exactly once.
- A slice is found without a walk over what was listed before: the low bits of a hash are its place
  in a table of any size, so the reversed bits are the order of the places.
- A node is read while no Python object is made that could start a garbage collection.

Source: the cursor of Redis's `SCAN` (dict.c), with the whole hash instead of the place.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp


cdef Weights weights_at(Node* node, QueueGroup* group) noexcept:
    """Return the weight of a node's plain subscriptions (`group` NULL), or of a queue group."""
    if group != NULL:
        return Weights(total=group.weight, local=group.weight - group.untold)
    return Weights(total=node.plain.count, local=<int64_t> node.plain.count - node.untold)


cdef Weights weights_of(Subscription sub) noexcept:
    """Return the weight of the interest that a listed subscription is part of."""
    return weights_at(<Node*> sub.node, <QueueGroup*> sub.group)


cdef Weights without(Weights weights, Subscription sub) noexcept:
    """Return the weight of an interest without one of its subscriptions."""
    cdef int64_t own = sub.weight if sub.queue_len else 1
    weights.total -= own
    if not is_untold(sub):
        weights.local -= own
    return weights


# The order of a listing

cdef inline uint64_t reversed_bits(uint64_t bits) noexcept nogil:
    bits = (bits >> 1) & <uint64_t> 0x5555555555555555 | (bits & <uint64_t> 0x5555555555555555) << 1
    bits = (bits >> 2) & <uint64_t> 0x3333333333333333 | (bits & <uint64_t> 0x3333333333333333) << 2
    bits = (bits >> 4) & <uint64_t> 0x0F0F0F0F0F0F0F0F | (bits & <uint64_t> 0x0F0F0F0F0F0F0F0F) << 4
    bits = (bits >> 8) & <uint64_t> 0x00FF00FF00FF00FF | (bits & <uint64_t> 0x00FF00FF00FF00FF) << 8
    bits = (
        (bits >> 16) & <uint64_t> 0x0000FFFF0000FFFF
        | (bits & <uint64_t> 0x0000FFFF0000FFFF) << 16
    )
    return bits >> 32 | bits << 32


cdef bint is_behind(Named* item, Token* token) noexcept nogil:
    """Return whether an item is listed after `token`."""
    cdef uint64_t one = reversed_bits(item.hash)
    cdef uint64_t other = reversed_bits(token.hash)
    cdef int differs
    if one != other:
        return one > other
    differs = memcmp(name_of(item), token.start, min(item.length, token.length))
    return differs > 0 or differs == 0 and item.length > token.length


cdef inline Token token_of(Named* item) noexcept nogil:
    return Token(start=name_of(item), hash=item.hash, length=item.length)


cdef Named* table_after(NameTable* table, Token* token) noexcept nogil:
    """Return the item that is listed next after `token` (NULL: first of all); NULL: none."""
    cdef uint64_t home = 0 if token == NULL else token.hash & table.mask
    cdef uint64_t place
    cdef Named* item
    cdef Named* found = NULL
    cdef Token least
    if table.mask == 0:
        item = <Named*> table.slots
        return item if item != NULL and (token == NULL or is_behind(item, token)) else NULL
    while True:
        place = home
        while table.slots[place].item != NULL:  # the items of one home stand in one run
            item = table.slots[place].item
            if (
                item.hash & table.mask == home and (token == NULL or is_behind(item, token))
                and (found == NULL or not is_behind(item, &least))
            ):
                found = item
                least = token_of(item)
            place = (place + 1) & table.mask
        if found != NULL:
            return found
        home = reversed_bits(reversed_bits(home | ~<uint64_t> table.mask) + 1)
        if home == 0:
            return NULL


cdef Node* child_after(Node* node, Token* token) noexcept nogil:
    """Return the child that is listed next after `token` (NULL: first of all); NULL: none."""
    cdef Named* item
    if token == NULL or not (
        is_star(token.start, token.length) or is_tail(token.start, token.length)
    ):
        item = table_after(&node.children, token)
        if item != NULL:
            return <Node*> item
        return node.star if node.star != NULL else node.tail
    return node.tail if is_star(token.start, token.length) else NULL


cdef Node* beside(Node* node) noexcept:
    """Return the node that is listed next after `node` and all that is below it; NULL: none."""
    cdef Node* found
    cdef Token token
    while node.parent != NULL:
        token = token_of(&node.token)
        found = child_after(node.parent, &token)
        if found != NULL:
            return found
        node = node.parent
    return NULL


cdef Node* following(Node* node) noexcept:
    """Return the node that is listed next after `node`; NULL: it is the last."""
    cdef Node* child = child_after(node, NULL)
    return child if child != NULL else beside(node)


cdef Node* node_after(Interest interest, const char* subject, Py_ssize_t length) except? NULL:
    """Return the node that is listed next after a subject; NULL: none. Length 0: the first node.

    The subject need not be there any more.
    """
    cdef Node* node = interest.root
    cdef Node* child
    cdef uint32_t at
    if length and split_tokens(&interest.tokens, subject, length) < 0:
        raise MemoryError
    for at in range(interest.tokens.count if length else 0):
        child = child_of(node, &interest.tokens.items[at])
        if child == NULL:
            child = child_after(node, &interest.tokens.items[at])
            return child if child != NULL else beside(node)
        node = child
    return following(node)


cdef Node* node_at(Interest interest, const char* subject, Py_ssize_t length) except? NULL:
    """Return the node of exactly this subject; NULL: there is none."""
    cdef Node* node = interest.root
    cdef uint32_t at
    cdef int valid = split_tokens(&interest.tokens, subject, length)
    if valid < 0:
        raise MemoryError
    if valid == 0:
        return NULL
    for at in range(interest.tokens.count):
        node = child_of(node, &interest.tokens.items[at])
        if node == NULL:
            return NULL
    return node


cdef bytes path_of(Node* node):
    """Return the subject of a node; the root's is empty."""
    cdef Node* at = node
    cdef Py_ssize_t size = 0
    cdef char* text
    while at.parent != NULL:
        size += at.token.length + 1
        at = at.parent
    if size == 0:
        return b""
    text = <char*> PyMem_Malloc(size)
    if text == NULL:
        raise MemoryError
    at = node
    while at.parent != NULL:
        size -= at.token.length + 1
        memcpy(text + size, name_of(&at.token), at.token.length)
        text[size + at.token.length] = c"."
        at = at.parent
    at = node
    while at.parent != NULL:
        size += at.token.length + 1
        at = at.parent
    try:
        return text[:size - 1]
    finally:
        PyMem_Free(text)


# The interests of a node

cdef int append_interests(list found, Node* node) except -1:
    """Append a subscription of each interest of a node, its total and its local weight."""
    cdef uint32_t place
    cdef QueueGroup* group
    if node.plain.count:
        append_interest(found, &node.plain, weights_at(node, NULL))
    for place in range(table_span(&node.groups)):
        group = <QueueGroup*> table_at(&node.groups, place)
        if group != NULL:
            append_interest(found, &group.members, weights_at(node, group))
    return 0


cdef int append_interest(list found, Members* members, Weights weights) except -1:
    found.append(<Subscription> members_of(members)[0])
    found.append(weights.total)
    found.append(weights.local)
    return 0


cdef list rows_of(list found, bint local):
    """Return what `append_interests` appended as tuples (subject, queue or None, weight).

    With `local` the weight is the local one; interests without weight are left out.
    """
    cdef Subscription sub
    cdef Py_ssize_t at
    cdef list rows = []
    for at in range(0, len(found), 3):
        sub = found[at]
        weight = found[at + 1 + local]
        if weight:
            rows.append((sub.subject_bytes, sub.queue_bytes, weight))
    return rows
