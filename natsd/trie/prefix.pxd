"""Writing of Prefix nodes: the content of a node that has children too.

    standalone   [ 00000001 | FF | …unused…                                   | 0000025E ]
                   content    flag                                              linked node
    embedded     [ 00000001 | 1C | …unused… | 0000053C | 0000057C | 00000000 | 00000000 ]
      in a Split head, 051F     └ offset of the Split in this same cell

- A Prefix is embedded wherever the cell has room: always in a Split's head, and in a Chain's cell
  that this same change made and that has five bytes in front. An older Chain is copied for it,
  since readers may use the bytes before its first transition.
- The link of a standalone Prefix is changed in place. An embedded one goes with its node: a new
  node gets a new Prefix.
- The same index of the same key may be written again into a Split's head that a reader of an older
  Prefix still uses: that reader finds the newer content.
- A Prefix never links to a Prefix, a leaf or NONE.
"""

from libc.stdint cimport int32_t, uint32_t


cdef enum:
    PREFIX_BYTES = 5            # bytes of an embedded Prefix


cdef inline bint has_room_for_prefix(Pointer node) noexcept nogil:
    return kind_of(node) == SPLIT or (is_chain(node) and kind_of(node) >= PREFIX_BYTES)


cdef inline Pointer embed_prefix(
    TrieMemory* memory, int32_t content, Pointer node
) noexcept nogil:
    cdef unsigned char* cell = in_cell(&memory.cells, node, 0)
    release_i32(cell, content)
    cell[PREFIX_FLAG] = <unsigned char> kind_of(node)
    return <Pointer> (cell_of(node) | PREFIX)


cdef inline Pointer new_prefix(
    TrieMemory* memory, int32_t content, Pointer node, bint fresh
) noexcept nogil:
    """Return a Prefix with content for a node with children.

    `fresh`: this same change made the node.
    """
    cdef uint32_t offset
    cdef unsigned char* cell
    assert node > NONE and kind_of(node) != PREFIX
    if has_room_for_prefix(node):
        if not fresh and is_chain(node):
            node = copied_chain(memory, node)
        return embed_prefix(memory, content, node)
    offset = take_cell(&memory.cells)
    cell = cell_address(&memory.cells, offset)
    (<int32_t*> cell)[0] = content
    cell[PREFIX_FLAG] = PREFIX_STANDALONE
    (<Pointer*> (cell + PREFIX_LINK))[0] = node
    return <Pointer> (offset | PREFIX)


cdef inline Pointer keep_content(
    TrieMemory* memory, Pointer with_content, Pointer old, Pointer new
) noexcept nogil:
    """Return the new node with the content of the old one, if any.

    `old` and `new` are without content. `with_content` is the old node as its parent links to it;
    if it is returned, the change was made in place.
    """
    cdef int32_t content
    if with_content == old:
        return new
    content = content_of(&memory.cells, with_content)
    if with_content < 0:
        return new_prefix(memory, content, new, True)
    if not is_embedded(&memory.cells, with_content):
        if new != NONE and not has_room_for_prefix(new):
            release_i32(in_cell(&memory.cells, with_content, PREFIX_LINK), new)
            return with_content
        retire_cell(memory, with_content)
    return ~content if new == NONE else new_prefix(memory, content, new, True)
