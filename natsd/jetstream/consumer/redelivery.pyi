from collections.abc import Callable

from natsd.store.consumer_tracker import ConsumerTracker

class Redelivery:
    def __init__(
        self, tracker: ConsumerTracker, exceeded: Callable[[int, int], object]
    ) -> None: ...
    @property
    def num_hints(self) -> int: ...
