"""Both tries against a dict, through random histories; old roots stay readable."""

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from natsd.trie.in_memory import CellTrie, InMemoryTrie, RecordTrie, TrieCursor
from tests.trie.plain_reader import check, read

# Few pieces make keys share stems of all lengths; any byte makes nodes of all kinds.
PIECES = st.sampled_from(
    [b"a", b"b", b"ab", b"orders.", b"eu.", b"\0", b"\xff", b"x" * 27, b"y" * 29]
)
KEYS = (
    st.lists(PIECES, max_size=5).map(b"".join)
    | st.binary(max_size=3)
    | st.builds(lambda stem, last: stem + bytes([last]), PIECES, st.integers(0, 255))
)


@dataclass
class Held:
    """A reader: its lease, the root that it saw, and the contents that have not changed since."""

    cursor: TrieCursor
    root: int
    untouched: dict[bytes, int]  # key → content index


class TrieHistory(RuleBasedStateMachine):
    """Random changes of a trie and of a dict, with readers of earlier roots."""

    trie: CellTrie

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[bytes, Any] = {}
        self.held: list[Held] = []
        self.count = 0

    def new_value(self) -> Any:
        raise NotImplementedError

    def real(self) -> Any:
        return self.trie

    def touched(self, key: bytes) -> None:
        for reader in self.held:
            reader.untouched.pop(key, None)

    @rule(key=KEYS)
    def put(self, key: bytes) -> None:
        value = self.new_value()
        self.real().put(key, value)
        self.model[key] = value

    @rule(stem=PIECES, transitions=st.binary(min_size=5, max_size=12))
    def put_siblings(self, stem: bytes, transitions: bytes) -> None:
        for transition in transitions:
            self.put(stem + bytes([transition]))

    @rule(key=KEYS)
    def delete_any(self, key: bytes) -> None:
        assert self.real().delete(key) == (key in self.model)
        self.model.pop(key, None)
        self.touched(key)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete_some(self, data: st.DataObject) -> None:
        for key in data.draw(
            st.lists(st.sampled_from(sorted(self.model)), max_size=8, unique=True)
        ):
            self.delete_any(key)

    @rule(stem=PIECES)
    def delete_all_below(self, stem: bytes) -> None:
        for key in [key for key in self.model if key.startswith(stem)]:
            self.delete_any(key)

    @rule(keys=st.lists(KEYS, max_size=10))
    def apply(self, keys: list[bytes]) -> None:
        mutation: InMemoryTrie[Any] = InMemoryTrie()
        for key in keys:
            self.model[key] = self.new_value()
            mutation.put(key, self.model[key])
        self.trie.apply(mutation, lambda existing, update: update)

    @rule(key=KEYS)
    def get(self, key: bytes) -> None:
        assert self.real().get(key) == self.model.get(key)

    @rule()
    def hold(self) -> None:
        untouched = dict(check(self.trie).contents)
        self.held.append(Held(self.trie.cursor(), self.trie.root, untouched))

    @precondition(lambda self: self.held)
    @rule(index=st.integers(0, 99))
    def let_go(self, index: int) -> None:
        self.held.pop(index % len(self.held)).cursor.close()

    @invariant()
    def everything_agrees(self) -> None:
        reading = check(self.trie)
        assert {key: self.real().get(key) for key in reading.contents} == self.model
        for reader in self.held:
            seen = read(self.trie, reader.root).contents
            assert seen.items() >= reader.untouched.items()

    def teardown(self) -> None:
        for reader in self.held:
            reader.cursor.close()
        for key in self.model:
            assert self.real().delete(key)
        self.trie.recycle()
        usage = self.trie.usage()
        assert (self.trie.root, usage.cells, usage.slots, usage.waiting) == (0, 0, 0, 0)


class ObjectHistory(TrieHistory):
    """The history of a trie of objects."""

    @initialize()
    def start(self) -> None:
        self.trie = InMemoryTrie()

    def new_value(self) -> Any:
        self.count += 1
        return self.count


class RecordHistory(TrieHistory):
    """The history of a trie of records."""

    @initialize(width=st.sampled_from([8, 28]))
    def start(self, width: int) -> None:
        self.trie = self.records = RecordTrie(width)

    def new_value(self) -> Any:
        self.count += 1
        return self.count.to_bytes(self.records.record_bytes, "little")

    @rule(keys=st.lists(KEYS, max_size=10))
    def update(self, keys: list[bytes]) -> None:
        block = RecordTrie(self.records.record_bytes)
        for key in keys:
            self.model[key] = self.new_value()
            block.put(key, self.model[key])
        self.records.update(block)


SETTINGS = settings(max_examples=80, stateful_step_count=40, deadline=None)
ObjectHistory.TestCase.settings = SETTINGS
RecordHistory.TestCase.settings = SETTINGS
TestObjectHistory = ObjectHistory.TestCase
TestRecordHistory = RecordHistory.TestCase
