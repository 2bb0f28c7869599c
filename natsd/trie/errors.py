"""What a trie can refuse, and what a reader can meet."""


class TrieError(Exception):
    """Base of what a trie raises for reasons of its own."""


class TrieFull(TrieError):
    """A write needs more than the size limit leaves; raised before anything is changed."""


class StaleCursor(TrieError):
    """A cursor that rested too long: what it stood on was recycled. A new one starts afresh."""


class ConcurrentWrite(TrieError):
    """A write began while another was under way: a trie has one writer at a time."""
