from collections.abc import Sequence

from natsd.core.outlet import Outlet
from natsd.jetstream.stream.core import StreamCore
from natsd.store.block import MsgBlock
from natsd.store.filter import Filter

class DirectBatch:
    """A direct get of many messages for one client, sent in slices."""

    def __init__(
        self,
        core: StreamCore,
        outlet: Outlet,
        reply: bytes,
        *,
        messages: int,
        bytes_max: int,
        pending: int,
        is_bare: bool,
    ) -> None:
        """Send `messages` messages (0: all), until `bytes_max` bytes are sent.

        `pending` is the number of matching messages. `is_bare`: payloads without headers.
        """

    def look_for(self, wanted: Filter, sequence: int) -> None:
        """Send the messages that match `wanted`, from `sequence` on."""

    def take_list(self, sequences: Sequence[int]) -> None:
        """Send these messages in that order, but those that are gone by then."""

    def send_some(self) -> MsgBlock | None:
        """Send a slice; to be called until `is_done`.

        Returns the block that must be fetched before the next call, or None.
        """

    @property
    def pending(self) -> int: ...
    @property
    def sent(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def is_done(self) -> bool: ...
    @property
    def is_congested(self) -> bool: ...
