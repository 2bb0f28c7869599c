"""An in-memory trie of bytes: compact cells, one writer, any number of readers that never wait."""
