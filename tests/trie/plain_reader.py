"""A slow, plain reader of a trie's cells, which the compiled code is compared with.

It reads the cells as natsd/trie/trie.md describes them. `read` follows every pointer from the root,
notes the cells that it passes, and fails if a rule about nodes is broken.
"""

import struct
from dataclasses import dataclass, field

from natsd.trie.in_memory import CellTrie

NONE = 0
SPLIT, SPARSE, PREFIX = 0x1C, 0x1E, 0x1F

Children = list[tuple[bytes, int]]  # keys that lead to children, and the children's pointers


@dataclass
class Reading:
    """The contents and cells that a walk over a trie found."""

    contents: dict[bytes, int] = field(default_factory=dict)  # key → content index
    cells: list[int] = field(default_factory=list)  # offsets, each once
    kinds: dict[str, int] = field(default_factory=dict)  # number of nodes of each kind
    is_old: bool = False

    def count(self, kind: str) -> None:
        """Count a node of this kind."""
        self.kinds[kind] = self.kinds.get(kind, 0) + 1


def words(cell: bytes) -> list[int]:
    """Return the eight 32-bit numbers of a cell, or fewer of a part of one."""
    return list(struct.unpack(f"={len(cell) // 4}i", cell))


def order_word(cell: bytes) -> int:
    """Return the order word of a Sparse cell."""
    return int(struct.unpack_from("=H", cell, 0x1E)[0])


def pointer_at(cell: bytes, offset: int) -> int:
    """Return the pointer at this byte offset of a cell."""
    return int(struct.unpack_from("=i", cell, offset)[0])


def order_digits(word: int) -> list[int]:
    """Return the digits of an order word in base 6, the lowest one first."""
    digits = []
    while word:
        word, digit = divmod(word, 6)
        digits.append(digit)
    return digits


def read(trie: CellTrie, old_root: int | None = None) -> Reading:
    """Return all that is below the root, or below an earlier root.

    An obsolete root's nodes may break the rules about the least number of children, since the last
    in-place change may have left too few.
    """
    reading = Reading(is_old=old_root is not None)
    todo: Children = [(b"", trie.root if old_root is None else old_root)]
    while todo:
        key, node = todo.pop()
        if node == NONE:
            assert key == b"", "only the root may be NONE"
            continue
        if node < 0:
            reading.count("leaf")
            reading.contents[key] = ~node
            continue
        todo += read_node(trie, reading, key, node)
    assert len(set(reading.cells)) == len(reading.cells), "a cell serves two nodes"
    assert len(set(reading.contents.values())) == len(reading.contents), "a slot serves two keys"
    return reading


def read_node(trie: CellTrie, reading: Reading, key: bytes, node: int) -> Children:
    """Note the node's cells and content, and return its children."""
    if node & 31 == PREFIX:
        prefix = node
        node = read_prefix(trie, reading, key, node)
        assert node > 0 and node & 31 != PREFIX, "a prefix links to a node with children"
        if (prefix ^ node) < 32:  # embedded: the cell is counted with the linked node
            reading.count("embedded prefix")
        else:
            reading.count("standalone prefix")
            reading.cells.append(prefix & ~31)
    if node & 31 == SPLIT:
        return read_split(trie, reading, key, node)
    if node & 31 == SPARSE:
        return read_sparse(trie, reading, key, node)
    assert node & 31 <= 0x1B, hex(node)
    return read_chain(trie, reading, key, node)


def read_prefix(trie: CellTrie, reading: Reading, key: bytes, node: int) -> int:
    """Note the content of a Prefix, and return the node that it links to."""
    cell = trie.cell(node)
    reading.contents[key] = pointer_at(cell, 0)
    return pointer_at(cell, 0x1C) if cell[4] == 0xFF else (node & ~31) | cell[4]


def read_chain(trie: CellTrie, reading: Reading, key: bytes, node: int) -> Children:
    """Note the cell of a Chain, and return its one child."""
    cell = trie.cell(node)
    reading.count("chain")
    reading.cells.append(node & ~31)
    return [(key + cell[node & 31 : 0x1C], pointer_at(cell, 0x1C))]


def read_sparse(trie: CellTrie, reading: Reading, key: bytes, node: int) -> Children:
    """Note the cell of a Sparse node, check it, and return its children in order."""
    cell = trie.cell(node)
    reading.count("sparse")
    reading.cells.append(node & ~31)
    order = order_digits(order_word(cell))
    assert 2 <= len(order) <= 6
    assert sorted(order) == list(range(len(order)))
    transitions = [cell[0x18 + index] for index in order]
    assert transitions == sorted(set(transitions))
    for index in range(len(order), 6):
        assert pointer_at(cell, 4 * index) == NONE
    return [(key + bytes([cell[0x18 + i]]), pointer_at(cell, 4 * i)) for i in order]


def read_split(trie: CellTrie, reading: Reading, key: bytes, node: int) -> Children:
    """Note the cells of a Split, check them, and return its children in order."""
    reading.count("split")
    reading.cells.append(node & ~31)
    children: Children = []
    for high, mid in linked_from(trie, node, 0x10):
        reading.cells.append(mid & ~31)
        ends = linked_from(trie, mid, 0)
        assert ends or reading.is_old, "a mid cell leads somewhere"
        for middle, end in ends:
            reading.cells.append(end & ~31)
            linked = linked_from(trie, end, 0)
            assert linked or reading.is_old, "an end cell leads somewhere"
            children += [
                (key + bytes([high << 6 | middle << 3 | low]), child) for low, child in linked
            ]
    assert len(children) > 6 or reading.is_old, "what fits into a Sparse node is one"
    return children


def linked_from(trie: CellTrie, cell: int, start: int) -> list[tuple[int, int]]:
    """Return index and pointer of each entry that is not NONE in a cell of a Split."""
    pointers = list(enumerate(words(trie.cell(cell)[start:])))
    return [(index, pointer) for index, pointer in pointers if pointer != NONE]


def check(trie: CellTrie) -> Reading:
    """Read the whole trie; assert that no cell and no slot is lost or counted twice."""
    reading = read(trie)
    usage = trie.usage()
    in_use = usage.cells + usage.slots - usage.waiting
    assert len(reading.cells) + len(reading.contents) == in_use
    assert len(reading.contents) == len(trie)
    return reading
