"""Is there an order of the operations on a register that explains what the clients saw?

Wing and Gong's search with Lowe's memo: choose any operation that no other operation precedes in
time, apply it, and go on; a set of applied operations with the same register value is tried once.
An operation without a return may have happened at any time after its call, or never.
"""

from typing import NamedTuple

FOREVER = 1 << 60
STEPS_MAX = 200_000


class Operation(NamedTuple):
    """One operation on one key. Written values are unique in the history."""

    called_at: int
    returned_at: int
    """FOREVER: the client gave up waiting."""
    kind: str
    """"write", "read" or "cas"."""
    expected: int
    """Compare-and-set: the value that is replaced."""
    value: int
    """The value written, or read."""
    seen: int
    """Compare-and-set that has returned: the value found."""


class Undecided(Exception):
    """The search takes too long."""


def is_linearizable(history: list[Operation], initial: int) -> bool:
    """Tell whether some order explains the history."""
    operations = sorted(without_unseen(history, initial))
    search = Search(operations)
    return search.run(initial)


def without_unseen(history: list[Operation], initial: int) -> list[Operation]:
    """Leave out unfinished operations whose value nobody saw, as if they had not happened.

    What an unfinished compare-and-set expected was seen, if its own value was.
    """
    finished = [each for each in history if each.returned_at != FOREVER]
    unfinished = {
        each.value: each for each in history if each.returned_at == FOREVER and each.kind != "read"
    }
    found = [initial, *(each.seen if each.kind == "cas" else each.value for each in finished)]
    kept = list[Operation]()
    while found:
        operation = unfinished.pop(found.pop(), None)
        if operation is not None:
            kept.append(operation)
            if operation.kind == "cas":
                found.append(operation.expected)
    return finished + kept


def apply(operation: Operation, value: int) -> int | None:
    """Return the register's value afterwards; None: the operation cannot happen now."""
    kind = operation.kind
    if kind == "write":
        return operation.value
    if kind == "read":
        return value if operation.value == value else None
    if operation.returned_at != FOREVER and operation.seen != value:
        return None
    return operation.value if operation.expected == value else value


class Search:
    """A depth-first search over orders."""

    def __init__(self, operations: list[Operation]) -> None:
        self.operations = operations
        self.required = sum(1 << at for at, o in enumerate(operations) if o.returned_at != FOREVER)

    def run(self, initial: int) -> bool:
        tried: set[tuple[int, int]] = set()
        stack = [(0, initial)]
        while stack:
            state = stack.pop()
            if state in tried:
                continue
            tried.add(state)
            done, value = state
            if done & self.required == self.required:
                return True
            if len(tried) > STEPS_MAX:
                raise Undecided
            stack += self.following(done, value)
        return False

    def following(self, done: int, value: int) -> list[tuple[int, int]]:
        """Return the states after each operation that may come next, the likeliest one last."""
        first_return = FOREVER
        found: list[tuple[int, int]] = []
        first_open = (~done & (done + 1)).bit_length() - 1
        for at in range(first_open, len(self.operations)):
            if done >> at & 1:
                continue
            operation = self.operations[at]
            if operation.called_at > first_return:
                break
            first_return = min(first_return, operation.returned_at)
            after = apply(operation, value)
            if after is not None:
                found.append((done | 1 << at, after))
        found.reverse()
        return found
