"""The errors of a trie's writers and readers."""


class TrieError(Exception):
    """Base of the errors that are specific to a trie."""


class TrieFull(TrieError):
    """A write needs more than the size limit leaves; raised before anything is changed."""


class StaleCursor(TrieError):
    """A cursor rested too long, so that its cells were recycled; start again with a new one."""


class ConcurrentWrite(TrieError):
    """A write began while another was in progress: a trie has one writer at a time."""
