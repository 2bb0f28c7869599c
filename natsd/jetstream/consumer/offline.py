"""The consumers of a stream that cannot be served: the reasons, and the messages kept for them.

Promise
- While there is one, no message is removed for lack of interest, and no published message is
  dropped for it: the messages that such a consumer still needs are not known. For the readers it is
  one more reader that wants everything and acknowledges nothing.
- An offline consumer keeps its name and its files until it is deleted or can be served again.
"""

from natsd.jetstream.stream.state import CallbackReader, StreamReaders


class _Holding:
    """The handler of a reader that needs every message."""

    def work(self) -> None:
        """Do nothing: it never waits for more messages."""

    def appeared(self, sequence: int) -> None:
        """Do nothing: nothing is counted."""

    def vanished(self, sequence: int) -> None:
        """Do nothing: nothing is counted."""

    def recount(self) -> None:
        """Do nothing: nothing is counted."""

    def needs(self, sequence: int) -> bool:
        """Return True: every message is needed."""
        return True


class OfflineConsumers:
    """The offline consumers of one stream."""

    def __init__(self, readers: StreamReaders) -> None:
        self._readers = readers
        self._holder = CallbackReader(_Holding())
        self.reasons: dict[str, str] = {}

    def add(self, name: str, reason: str) -> None:
        """Note that a consumer cannot be served; from now on every message is kept."""
        if not self.reasons:
            self._readers.add_reader(self._holder)
        self.reasons[name] = reason

    def remove(self, name: str) -> None:
        """Note that a consumer is gone for good."""
        del self.reasons[name]
        if not self.reasons:
            self._readers.remove_reader(self._holder)
