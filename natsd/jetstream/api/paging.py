"""Pages of long lists, as in nats-server's `ApiPaged`."""

from collections.abc import Sequence
from typing import TypeVar

from natsd.jetstream.models.response import Paged

T = TypeVar("T")


def page_of(items: Sequence[T], offset: int, limit: int) -> tuple[Sequence[T], Paged]:
    """Return at most `limit` items from `offset` on, and the page's numbers.

    An offset beyond the end means the end.
    """
    offset = min(max(offset, 0), len(items))
    return items[offset : offset + limit], Paged(total=len(items), offset=offset, limit=limit)
