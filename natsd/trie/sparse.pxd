"""Writing of Sparse nodes: two to six children in one cell, unordered except for the order word.

    [ 0238 | 013A | 033B | –  |  –  |  –  ][ A C 5 – – – ][ 0026 ]    5, A, C: 0026 is 102 in base 6
      00     04     08     0C    10    14     18             1E

- A child is added behind the others: first its character, then its pointer with release, then the
  order word with release. A reader that looks up a transition sees the child once the pointer is
  stored, a reader that walks once the order word is.
- A transition's pointer is replaced in place.
- A child is removed by copying the others, because lookups stop at the first NONE. Copies are in
  order, so their order word is 10, 210, 3210 … in base 6. As 1 precedes 0 from the start and
  additions only insert digits, the leading digit is never 0, and the number of digits is the number
  of children.
"""

from libc.stdint cimport uint16_t, uint32_t


cdef struct Children:           # of one node, in order of their transitions
    uint32_t count
    unsigned char[SPARSE_CHILDREN_MAX + 1] transitions
    Pointer[SPARSE_CHILDREN_MAX + 1] pointers


cdef inline void add_to(Children* some, unsigned char transition, Pointer child) noexcept nogil:
    some.transitions[some.count] = transition
    some.pointers[some.count] = child
    some.count += 1


cdef inline Pointer new_sparse(TrieMemory* memory, const Children* children) noexcept nogil:
    """Return a new node of two to six children, which must be in order."""
    cdef uint32_t offset = take_clear_cell(&memory.cells)
    cdef unsigned char* cell = cell_address(&memory.cells, offset)
    cdef uint32_t order = 0
    cdef uint32_t i
    for i in range(children.count, 0, -1):
        (<Pointer*> cell)[i - 1] = children.pointers[i - 1]
        cell[SPARSE_CHARS + i - 1] = children.transitions[i - 1]
        order = order * 6 + i - 1
    (<uint16_t*> (cell + SPARSE_ORDER))[0] = <uint16_t> order
    return <Pointer> (offset | SPARSE)


cdef inline Pointer new_sparse_of_two(
    TrieMemory* memory,
    unsigned char one, Pointer one_child, unsigned char other, Pointer other_child,
) noexcept nogil:
    cdef Children children
    children.count = 0
    if one < other:
        add_to(&children, one, one_child)
    add_to(&children, other, other_child)
    if one > other:
        add_to(&children, one, one_child)
    return new_sparse(memory, &children)


cdef inline Children sparse_children(TrieMemory* memory, Pointer sparse) noexcept nogil:
    cdef Children children
    cdef uint32_t order = sparse_order(&memory.cells, sparse)
    children.count = 0
    while order:
        add_to(
            &children,
            sparse_char(&memory.cells, sparse, order % 6),
            sparse_pointer(&memory.cells, sparse, order % 6),
        )
        order //= 6
    return children


cdef inline uint16_t order_with(
    TrieMemory* memory, Pointer sparse, uint32_t index, unsigned char transition
) noexcept nogil:
    """Return the order word with `index` above all lower transitions and below all higher ones."""
    cdef uint32_t higher = sparse_order(&memory.cells, sparse)
    cdef uint32_t lower = 0
    cdef uint32_t scale = 1
    while higher and sparse_char(&memory.cells, sparse, higher % 6) < transition:
        lower += higher % 6 * scale
        scale *= 6
        higher //= 6
    return <uint16_t> ((higher * 6 + index) * scale + lower)


cdef inline bint sparse_add(
    TrieMemory* memory, Pointer sparse, unsigned char transition, Pointer child
) noexcept nogil:
    """Add a child in place; return false if the cell is full."""
    cdef unsigned char* cell = in_cell(&memory.cells, sparse, 0)
    cdef uint32_t index = 0
    while index < SPARSE_CHILDREN_MAX and (<Pointer*> cell)[index] != NONE:
        index += 1
    if index == SPARSE_CHILDREN_MAX:
        return False
    cell[SPARSE_CHARS + index] = transition
    release_i32(cell + 4 * index, child)
    release_u16(cell + SPARSE_ORDER, order_with(memory, sparse, index, transition))
    return True
