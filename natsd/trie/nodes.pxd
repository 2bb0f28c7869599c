"""Reading of nodes: the target of a pointer, its content, its children. Inline, without the GIL.

A pointer is a signed 32-bit number. Negative: a leaf, content index ~pointer, no children. Zero:
NONE. Else the upper 27 bits are the cell, and the lower five the kind of node:

    00 - 1B  Chain   one transition per byte up to 1B, then the pointer to the next node
    1C       Split   more than six children: head, mid and end cells of 4, 8 and 8 pointers
    1E       Sparse  two to six children: 6 pointers, 6 characters, order word
    1F       Prefix  content for the node it links to; standalone, or embedded in that node's cell

                00            04   05       10            18                1B 1C         1E    1F
    Chain       [ may hold a Prefix ]  [ … transitions, the last one at 1B   ] [ child pointer   ]
    Split head  [ may hold a Prefix ]       [ mid 00    | mid 01   | mid 10    | mid 11          ]
    mid, end    [ pointer 000 | 001         | 010 | 011 | 100      | 101       | 110 | 111       ]
    Sparse      [ child 0 | child 1 | child 2 | … child 5 ][ char 0 … char 5       ][ order word  ]
    Prefix      [ content index | FF ]                                          [ linked pointer ]
      embedded  [ content index | 1C or the Chain's offset ]

Pointers that a change attaches are stored with release, so every pointer here is loaded with
acquire; in a Sparse node an index's pointer is loaded before its character. Everything else in a
cell is written before the cell can be reached.

Source: Cassandra's InMemoryTrie design. Where it is inconsistent we chose:
- Pointers to mid and end cells have offset 1C (053C for the cell at 0520), as in its Split example
  and not as in its combined cell: an end cell may be cell 0, and its pointer is then not NONE.
- The standalone flag is one byte, FF.
- Byte order is native; the drawings of that design are big-endian.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef enum:
    NONE = 0
    NO_CONTENT = -1

    CHAIN_LAST = 0x1B           # kind of a Chain node directly before its child's pointer
    SPLIT = 0x1C
    SPARSE = 0x1E
    PREFIX = 0x1F

    CHAIN_END = 0x1C            # offset of a Chain's child pointer
    SPARSE_CHILDREN_MAX = 6
    SPARSE_CHARS = 0x18
    SPARSE_ORDER = 0x1E
    SPLIT_HEAD = 0x10           # offset of the head's first pointer
    PREFIX_FLAG = 0x04
    PREFIX_LINK = 0x1C
    PREFIX_STANDALONE = 0xFF

ctypedef int32_t Pointer


cdef inline uint32_t kind_of(Pointer node) noexcept nogil:
    """Return the low five bits, the kind of a node that is neither NONE nor a leaf."""
    return node & CELL_MASK


cdef inline bint is_chain(Pointer node) noexcept nogil:
    return node > NONE and kind_of(node) <= CHAIN_LAST


cdef inline bint is_prefix(Pointer node) noexcept nogil:
    return node > NONE and kind_of(node) == PREFIX


cdef inline uint32_t cell_of(Pointer node) noexcept nogil:
    return <uint32_t> node & ~(<uint32_t> CELL_MASK)


cdef inline unsigned char* at(const Cells* cells, Pointer node) noexcept nogil:
    """Return the address of the byte to which a pointer points."""
    return cell_address(cells, <uint32_t> node)


cdef inline unsigned char* in_cell(
    const Cells* cells, Pointer node, uint32_t offset
) noexcept nogil:
    return cell_address(cells, cell_of(node)) + offset


# Prefix

cdef inline int32_t content_of(const Cells* cells, Pointer node) noexcept nogil:
    """Return the content index of a node, as its parent links to it, or NO_CONTENT."""
    if node < 0:
        return ~node
    if kind_of(node) != PREFIX:
        return NO_CONTENT
    return (<int32_t*> in_cell(cells, node, 0))[0]


cdef inline bint is_embedded(const Cells* cells, Pointer prefix) noexcept nogil:
    return in_cell(cells, prefix, PREFIX_FLAG)[0] != PREFIX_STANDALONE


cdef inline Pointer prefix_link(const Cells* cells, Pointer prefix) noexcept nogil:
    """Return the Chain, Sparse or Split to which a Prefix adds content."""
    cdef unsigned char* cell = in_cell(cells, prefix, 0)
    cdef uint8_t flag = cell[PREFIX_FLAG]
    if flag == PREFIX_STANDALONE:
        return acquire_i32(cell + PREFIX_LINK)
    return <Pointer> (cell_of(prefix) | flag)


cdef inline Pointer without_content(const Cells* cells, Pointer node) noexcept nogil:
    """Return the node that has the children: the one behind a Prefix; NONE for a leaf."""
    if node < 0:
        return NONE
    if kind_of(node) == PREFIX:
        return prefix_link(cells, node)
    return node


# Chain

cdef inline uint32_t chain_length(Pointer chain) noexcept nogil:
    """Return how many transitions follow one another in this cell."""
    return CHAIN_END - kind_of(chain)


cdef inline Pointer chain_target(const Cells* cells, Pointer chain) noexcept nogil:
    """Return the node to which the cell's last transition leads."""
    return acquire_i32(in_cell(cells, chain, CHAIN_END))


cdef inline Pointer chain_child(const Cells* cells, Pointer chain) noexcept nogil:
    """Return the node to which the Chain's first transition leads."""
    return chain_target(cells, chain) if kind_of(chain) == CHAIN_LAST else chain + 1


cdef inline bint chain_agrees(
    const unsigned char* chain, const unsigned char* key, uint32_t length
) noexcept nogil:
    """Return whether all transitions of a chain are the key's next bytes.

    They are few, so they are compared here without a call.
    """
    cdef uint64_t one, other
    cdef uint32_t i = 0
    while length - i >= 8:
        memcpy(&one, chain + i, 8)
        memcpy(&other, key + i, 8)
        if one != other:
            return False
        i += 8
    while i < length:
        if chain[i] != key[i]:
            return False
        i += 1
    return True


# Sparse

cdef inline uint16_t sparse_order(const Cells* cells, Pointer sparse) noexcept nogil:
    """Return the order word: base 6, lowest digit the index of the lowest transition; never 0."""
    return acquire_u16(in_cell(cells, sparse, SPARSE_ORDER))


cdef inline unsigned char sparse_char(
    const Cells* cells, Pointer sparse, uint32_t index
) noexcept nogil:
    return in_cell(cells, sparse, SPARSE_CHARS)[index]


cdef inline Pointer sparse_pointer(
    const Cells* cells, Pointer sparse, uint32_t index
) noexcept nogil:
    return acquire_i32(in_cell(cells, sparse, 4 * index))


cdef inline int32_t sparse_index(
    const Cells* cells, Pointer sparse, unsigned char transition, Pointer* child
) noexcept nogil:
    """Return the index of that transition, and its child; -1 and NONE if there is none."""
    cdef unsigned char* cell = in_cell(cells, sparse, 0)
    cdef int32_t index
    for index in range(SPARSE_CHILDREN_MAX):
        child[0] = acquire_i32(cell + 4 * index)
        if child[0] == NONE:
            return -1
        if relaxed_u8(cell + SPARSE_CHARS + index) == transition:
            return index
    child[0] = NONE
    return -1


cdef inline Pointer sparse_child(
    const Cells* cells, Pointer sparse, unsigned char transition
) noexcept nogil:
    cdef Pointer child
    sparse_index(cells, sparse, transition, &child)
    return child


# Split: a transition's bits are HHMMMTTT, for head, mid and end

cdef inline unsigned char* split_head_slot(
    const Cells* cells, Pointer split, unsigned char transition
) noexcept nogil:
    return in_cell(cells, split, SPLIT_HEAD) + 4 * (transition >> 6)


cdef inline unsigned char* split_mid_slot(
    const Cells* cells, Pointer mid, unsigned char transition
) noexcept nogil:
    return in_cell(cells, mid, 0) + 4 * ((transition >> 3) & 7)


cdef inline unsigned char* split_end_slot(
    const Cells* cells, Pointer end, unsigned char transition
) noexcept nogil:
    return in_cell(cells, end, 0) + 4 * (transition & 7)


cdef inline Pointer split_child(
    const Cells* cells, Pointer split, unsigned char transition
) noexcept nogil:
    cdef Pointer inner = acquire_i32(split_head_slot(cells, split, transition))
    if inner == NONE:
        return NONE
    inner = acquire_i32(split_mid_slot(cells, inner, transition))
    if inner == NONE:
        return NONE
    return acquire_i32(split_end_slot(cells, inner, transition))


# Any node without a Prefix

cdef inline Pointer node_child(
    const Cells* cells, Pointer node, unsigned char transition
) noexcept nogil:
    """Return the child of a Chain, Sparse or Split for one transition; NONE for NONE."""
    cdef uint32_t kind = kind_of(node)
    if kind == SPLIT:
        return split_child(cells, node, transition)
    if kind == SPARSE:
        return sparse_child(cells, node, transition)
    if node == NONE or at(cells, node)[0] != transition:
        return NONE
    return chain_child(cells, node)


cdef inline Pointer chain_part(
    const Cells* cells, Pointer chain, const unsigned char* key, uint32_t length
) noexcept nogil:
    """Return the node inside a chain at which a key ends; NONE if the key differs."""
    if not chain_agrees(at(cells, chain), key, length):
        return NONE
    return chain + <Pointer> length


cdef inline Pointer find_node(
    const Cells* cells, Pointer root, const unsigned char* key, Py_ssize_t length
) noexcept nogil:
    """Return the node to which a key leads, as its parent links to it; NONE if there is none."""
    cdef Pointer node = root
    cdef Py_ssize_t depth = 0
    cdef uint32_t run
    while depth < length:
        node = without_content(cells, node)
        if is_chain(node):
            run = chain_length(node)
            if length - depth < run:
                return chain_part(cells, node, key + depth, <uint32_t> (length - depth))
            if not chain_agrees(at(cells, node), key + depth, run):
                return NONE
            node = chain_target(cells, node)
            depth += run
            continue
        prefetch_cell(at(cells, node) + 64)     # a Split's end cell is often there
        node = node_child(cells, node, key[depth])
        if node == NONE:
            return NONE
        depth += 1
    return node
