from collections.abc import Sequence

from natsd.core.outlet import Outlet
from natsd.jetstream.stream.core import StreamCore
from natsd.store.block import MsgBlock
from natsd.store.filter import Filter

class DirectBatch:
    """Many messages for one client, sent in slices."""

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
        """Up to so many messages (0: all), until `bytes_max` bytes are sent. `pending`: how many
        match. `is_bare`: payloads only."""

    def look_for(self, wanted: Filter, sequence: int) -> None:
        """What matches, from this sequence on."""

    def take_list(self, sequences: Sequence[int]) -> None:
        """These, in that order; those that are gone by then are left out."""

    def send_some(self) -> MsgBlock | None:
        """A slice; until `is_done`. A block that must be fetched before the next one, if any."""

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
