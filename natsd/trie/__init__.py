"""An in-memory byte trie: 32-byte cells, one writer, any number of readers that never lock.

`InMemoryTrie`, its cursors (`cursor`, `slice_cursor`, `union_cursor`, `match_cursor`), `views` and
`dump` are public: other programs may use them. Of these, the server itself uses only the patterns
(`pattern`) and its own kind of trie, `RecordTrie`. docs: `trie.md`, in this directory.
"""
