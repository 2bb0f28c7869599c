"""Pages of long lists.

Source: reference §6.1.
"""

from collections.abc import Sequence
from typing import TypeVar

from natsd.jetstream.models.response import Paged

T = TypeVar("T")


def page_of(items: Sequence[T], offset: int, limit: int) -> tuple[Sequence[T], Paged]:
    """The items from `offset` on, at most `limit`; an offset beyond the end is the end."""
    offset = min(max(offset, 0), len(items))
    return items[offset : offset + limit], Paged(total=len(items), offset=offset, limit=limit)
