from collections.abc import Callable

class LogObserver: ...

class CallbackObserver(LogObserver):
    def __init__(
        self, on_removed: Callable[[int, int | None], object], on_emptied: Callable[[], object]
    ) -> None: ...
