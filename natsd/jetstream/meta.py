"""The meta layer: how streams come, change and go.

    check   who was asked: configuration, limits, overlap       account.py
      │     created time and name are decided here
      ▼
    propose one server: applied at once; several: agreed on first
      │
      ▼
    apply   on every server: files, store, subscriptions        account.py, stream/stream.py

Promise
- A change carries everything that was decided: who applies it reads no clock and refuses nothing
  but for want of files.
- `propose` returns when the change is applied and on disk, and raises what applying it raised.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from natsd.jetstream.models.stream import StreamConfig


@dataclass(frozen=True, slots=True)
class CreateStream:
    """`config` is complete: defaults are filled in."""

    account: str
    config: StreamConfig
    created_ns: int


@dataclass(frozen=True, slots=True)
class RestoreStream:
    """The stream that stands in that directory, `meta.json` and all, which goes to its place."""

    account: str
    config: StreamConfig
    created_ns: int
    built: Path


@dataclass(frozen=True, slots=True)
class UpdateStream:
    """The stream of that name gets this configuration."""

    account: str
    config: StreamConfig


@dataclass(frozen=True, slots=True)
class DeleteStream:
    """The stream goes, with its messages and consumers."""

    account: str
    name: str


Change: TypeAlias = CreateStream | RestoreStream | UpdateStream | DeleteStream


class Meta:
    """One server's: it agrees with itself."""

    def __init__(self, apply: Callable[[Change], Awaitable[None]]) -> None:
        self._apply = apply

    async def propose(self, change: Change) -> None:
        """Have it carried out."""
        await self._apply(change)
