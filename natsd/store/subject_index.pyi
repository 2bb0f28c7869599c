from natsd.trie.record_trie import RecordTrie

class SubjectIndex:
    trie: RecordTrie
    count: int
    births: int
    ghosts: int

    def __init__(self, births: int = 0, frees: int = 0) -> None: ...
    @property
    def memory_bytes(self) -> int: ...
