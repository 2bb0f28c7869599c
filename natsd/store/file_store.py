"""FileStore: one stream's messages in the block files of one directory.

    <directory>/  000001.blk …   the messages (stored_blocks.py)
                  index.db       what the blocks hold as of some commit (index_db.py)
                  key.db         the stream's key, where it is encrypted (keys.py)

    MessageLog decides │ FileCommits makes it durable │ BlockCare does what may wait │ BlockCache
    reads what is not in memory

Promise
- Everything of natsd.store.store.Store: `append` and the reads of what is in memory answer at once;
  what must wait for the disk is awaited, in the volume's threads.
- Memory does not grow with what is on disk: blocks share the volume's budgets, and a block that is
  out of memory keeps which of its sequences are gone.
- An operation that would hold the loop goes on in slices of SLICE_BUDGET.
- What is damaged on disk is in `damage`, was logged in one line each, and is never served.
- A store with nothing to do has no task, no timer and no thread.

Source: nats-server's filestore for what the operations mean; "Durability" of the design.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from natsd.store.block_cache import BlockCache
from natsd.store.block_care import BlockCare
from natsd.store.errors import ColdBlock, MessageDamaged, MessageNotFound, StoreClosed
from natsd.store.file_commits import FileCommits
from natsd.store.filter import Filter
from natsd.store.keys import OperatorKeys, create_data_key, open_data_key
from natsd.store.log import MessageLog
from natsd.store.record import StoredMessage
from natsd.store.recovery import FoundDamage, recover
from natsd.store.removal import Compact, Purge, RemoveAbove, ThinSubjects
from natsd.store.search import (
    LastMatch,
    MultiLast,
    NextMatch,
    NumPending,
    Operation,
    SubjectStates,
    SubjectTotals,
)
from natsd.store.store import Limits, StoreState, SubjectState
from natsd.store.stored_blocks import RandomBytes, StoredBlocks
from natsd.store.volume import Volume

SLICE_BUDGET = 500_000  # of an Operation: about a millisecond
REMOVALS_PER_SLICE = 4_000
UNDO_BYTES_MAX = 4 << 20  # of removals that are not committed yet

_logger = logging.getLogger(__name__)
T = TypeVar("T")
