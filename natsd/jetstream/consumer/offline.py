"""The consumers of a stream that cannot be served: why not, and what the stream holds for them.

Promise
- While there is one, no message is removed for want of interest, and none that is published is
  dropped for it: which messages such a consumer still needs is not known. This is told to the core
  as one more reader that wants everything and acknowledges nothing.
- An offline consumer keeps its name and its files until it is deleted or can be served again.
"""

from natsd.jetstream.stream.core import CallbackReader, StreamCore


class _Holding:
    """The handler of a reader that needs every message."""

    def work(self) -> None:
        """It never asks for more."""

    def appeared(self, sequence: int) -> None:
        """Nothing is counted."""

    def vanished(self, sequence: int) -> None:
        """Nothing is counted."""

    def recount(self) -> None:
        """Nothing is counted."""

    def needs(self, sequence: int) -> bool:
        return True


class OfflineConsumers:
    """Of one stream, by name."""

    def __init__(self, core: StreamCore) -> None:
        self._core = core
        self._holder = CallbackReader(_Holding())
        self.reasons: dict[str, str] = {}

    def add(self, name: str, reason: str) -> None:
        """The consumer cannot be served; from now on every message is held."""
        if not self.reasons:
            self._core.add_reader(self._holder)
        self.reasons[name] = reason

    def remove(self, name: str) -> None:
        """The consumer is gone for good."""
        del self.reasons[name]
        if not self.reasons:
            self._core.remove_reader(self._holder)
