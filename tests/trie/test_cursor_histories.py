"""Cursors that are open while keys come and go, through random histories.

A cursor shows every key that was there during its whole walk, each once and in order, and no key
that was never there. Source: Cassandra's InMemoryTrie design, "Mutation".
"""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from natsd.core.routing import matches
from natsd.trie.errors import StaleCursor
from natsd.trie.in_memory import InMemoryTrie, PatternCursor, TrieCursor

LETTERS = st.sampled_from(b"\x00.abcdefgh@P\xff")  # enough bytes for Splits; patterns need `.`
KEYS = st.lists(LETTERS, max_size=3).map(bytes) | st.tuples(
    st.sampled_from([b"", b"a", b"a" * 27, b"a" * 60]), st.lists(LETTERS, max_size=2).map(bytes)
).map(b"".join)


@dataclass
class Open:
    """An open cursor, and the keys that it must show and may show."""

    cursor: TrieCursor | PatternCursor
    pattern: str
    always: set[bytes]  # keys that were there since the cursor was made
    ever: set[bytes]
    seen: list[bytes] = field(default_factory=list)

    def move(self) -> bool:
        """Move to the next key; return False at the end."""
        if isinstance(self.cursor, PatternCursor):
            try:
                key, content = next(self.cursor)
            except StopIteration:
                return False
        else:
            if self.cursor.advance_to_content() < 0:
                return False
            key, content = self.cursor.key(), self.cursor.content()
        assert content == key
        self.seen.append(key)
        return True

    def check(self) -> None:
        must = {key for key in self.always if self.may_show(key)}
        may = {key for key in self.ever if self.may_show(key)}
        assert must <= set(self.seen) <= may
        assert self.seen == sorted(set(self.seen), key=self.place)

    def may_show(self, key: bytes) -> bool:
        if isinstance(self.cursor, PatternCursor):
            return matches(key, self.pattern)
        return key != b""  # the cursor has passed the root

    def place(self, key: bytes) -> bytes:
        flip = 0xFF if isinstance(self.cursor, TrieCursor) and self.cursor.reverse else 0
        return bytes(byte ^ flip for byte in key)


class CursorHistory(RuleBasedStateMachine):
    """Random puts, deletes and moves of open cursors."""

    cursors = Bundle("cursors")

    @initialize(garbage_bytes_max=st.sampled_from([0, 256, 1 << 20]), keys=st.sets(KEYS))
    def start(self, garbage_bytes_max: int, keys: set[bytes]) -> None:
        self.trie: InMemoryTrie[bytes] = InMemoryTrie(garbage_bytes_max=garbage_bytes_max)
        self.keys = set(keys)
        self.opened: list[Open] = []
        for key in keys:
            self.trie.put(key, key)

    @rule(keys=st.lists(KEYS, max_size=12))
    def put(self, keys: list[bytes]) -> None:
        for key in keys:
            self.trie.put(key, key)
            self.keys.add(key)
            for each in self.opened:
                each.ever.add(key)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        keys = st.lists(st.sampled_from(sorted(self.keys) or [b""]), max_size=12)
        for key in data.draw(keys):
            assert self.trie.delete(key) is (key in self.keys)
            self.keys.discard(key)
            for each in self.opened:
                each.always.discard(key)

    @rule(target=cursors, reverse=st.booleans())
    def walk(self, reverse: bool) -> Open:
        return self.opening(self.trie.cursor(reverse), "")

    @rule(target=cursors, pattern=st.sampled_from([">", "*", "a.*", "*.b", "*.>", "a"]))
    def match(self, pattern: str) -> Open:
        return self.opening(PatternCursor(self.trie, pattern), pattern)

    def opening(self, cursor: TrieCursor | PatternCursor, pattern: str) -> Open:
        self.opened.append(Open(cursor, pattern, set(self.keys), set(self.keys)))
        return self.opened[-1]

    @rule(each=cursors, steps=st.integers(1, 5))
    def move(self, each: Open, steps: int) -> None:
        self.moves(each, steps)

    @rule(each=consumes(cursors))
    def finish(self, each: Open) -> None:
        if self.moves(each, len(each.ever) + 2):
            each.check()
        self.opened.remove(each)
        each.cursor.close()

    def moves(self, each: Open, steps: int) -> bool:
        """Move the cursor and return whether it is at its end.

        A stale pattern cursor resumes. Another stale cursor has lost its place.
        """
        for _ in range(steps):
            try:
                if not each.move():
                    return True
            except StaleCursor:
                if not isinstance(each.cursor, PatternCursor):
                    return False
                each.cursor.resume()
        return False

    @invariant()
    def the_trie_is_whole(self) -> None:
        cursor = self.trie.cursor()
        shown = {b""} & self.keys
        while cursor.advance_to_content() >= 0:
            shown.add(cursor.key())
        assert shown == self.keys


CursorHistory.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestCursorHistory = CursorHistory.TestCase
