"""The meta layer: how streams are created, changed and deleted.

    check   on the server that was asked: configuration, limits, overlap    account.py
      │     creation time and name are decided here
      ▼
    propose one server: applied at once; several: agreed on first
      │
      ▼
    apply   on every server: files, store, subscriptions        account.py, stream/stream.py

Promise
- A change carries everything that was decided: applying it reads no clock, and fails only if files
  cannot be written.
- `propose` returns when the change is applied and on disk, and raises what applying it raised.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from natsd.jetstream.models.stream import StreamConfig


@dataclass(frozen=True, slots=True)
class CreateStream:
    """Creation of a stream; `config` is complete: defaults are filled in."""

    account: str
    config: StreamConfig
    created_ns: int


@dataclass(frozen=True, slots=True)
class RestoreStream:
    """Installation of a restored stream: its complete directory `built` moves to its place."""

    account: str
    config: StreamConfig
    created_ns: int
    built: Path


@dataclass(frozen=True, slots=True)
class UpdateStream:
    """A new configuration for the stream of that name."""

    account: str
    config: StreamConfig


@dataclass(frozen=True, slots=True)
class DeleteStream:
    """Deletion of a stream, with its messages and consumers."""

    account: str
    name: str


Change: TypeAlias = CreateStream | RestoreStream | UpdateStream | DeleteStream


class Meta:
    """The meta layer of a single server: every proposed change is applied at once."""

    def __init__(self, apply: Callable[[Change], Awaitable[None]]) -> None:
        self._apply = apply

    async def propose(self, change: Change) -> None:
        """Carry out the change, and return when it is applied and on disk."""
        await self._apply(change)
