"""A wall clock for tests of JetStream's parts."""

SECOND_NS = 1_000_000_000
START_NS = 1_700_000_000 * SECOND_NS


class Clock:
    """A wall clock that the test sets by hand."""

    def __init__(self) -> None:
        self.now_ns = START_NS

    def __call__(self) -> int:
        return self.now_ns
