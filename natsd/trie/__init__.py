"""An in-memory byte trie: 32-byte cells, one writer, any number of readers that never lock."""
