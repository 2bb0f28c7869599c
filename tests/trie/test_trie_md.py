"""The worked example of `natsd/trie/trie.md` is what the trie does."""

import re
import struct

from natsd.trie.dump import dump
from natsd.trie.in_memory import InMemoryTrie
from tests.source.reading import ROOT

TEXT = (ROOT / "natsd" / "trie" / "trie.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```trie\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
LAYOUTS = {  # numbers, and bytes as they are in the cell
    "Chain": "=I24sI",
    "Prefix": "=I24sI",
    "Sparse": "=6I6sH",
    "Head": "=I12s4I",
    "Middle": "=8I",
    "End": "=8I",
}


def drawn(offset: int, kind: str, cell: bytes) -> str:
    """Return a cell as natsd/trie/trie.md draws it."""
    parts = struct.unpack(LAYOUTS[kind], cell)
    words = [part.hex() if isinstance(part, bytes) else f"{part:08x}" for part in parts]
    if kind == "Sparse":
        words[-1] = words[-1][-4:]
    return f"{offset:04x} {kind:7} {' '.join(words)}"


def test_the_example_is_what_happens() -> None:
    trie: InMemoryTrie[str] = InMemoryTrie()
    held = trie.cursor()
    assert len(BLOCKS) == 7
    for block in BLOCKS:
        lines = block.splitlines()
        for line in lines:
            match line.split():
                case ["put", key]:
                    trie.put(key.encode(), key)
                case ["delete", key]:
                    trie.delete(key.encode())
        shown = [line.removeprefix("    ") for line in lines if line.startswith("    ")]
        assert dump(trie).splitlines() == shown
        cells = [line for line in lines if re.match("[0-9a-f]{4} ", line)]
        for line in cells:
            offset, kind = int(line[:4], 16), line.split()[1]
            assert drawn(offset, kind, trie.cell(offset)) == line
    held.close()
