"""Concurrent work on many items, a limited number at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def gather_limited(
    work: Callable[[T], Awaitable[object]], items: Iterable[T], *, most: int
) -> None:
    """Do the work for each item, for at most `most` of them at once.

    If one fails, the others are cancelled, and its error is raised.
    """
    turns = asyncio.Semaphore(most)

    async def take_turn(item: T) -> None:
        async with turns:
            await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for item in items:
                group.create_task(take_turn(item))
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None
