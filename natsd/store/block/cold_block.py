"""The error by which a log asks its store for a block: load it, then call again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from natsd.store.errors import StoreError

if TYPE_CHECKING:
    from natsd.store.block.blocks import MsgBlock


class ColdBlock(StoreError):
    """A call on a log needs a block that is not in memory; the call has changed nothing."""

    text = "a block is not in memory"

    def __init__(self, block: MsgBlock) -> None:
        super().__init__(f"block {block.block_id} is not in memory")
        self.block = block
