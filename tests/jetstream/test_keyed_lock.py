"""Each asset is changed by one request at a time."""

import asyncio

from natsd.jetstream.keyed_lock import KeyedLock


async def test_changes_of_one_name_take_turns_and_others_do_not() -> None:
    changing, steps = KeyedLock(), list[str]()

    async def change(name: str, step: str) -> None:
        async with changing(name):
            steps.append(f"{step} begins")
            await asyncio.sleep(0)
            steps.append(f"{step} ends")

    await asyncio.gather(change("A", "first"), change("A", "second"), change("B", "other"))
    assert [step for step in steps if "other" not in step] == [
        "first begins",
        "first ends",
        "second begins",
        "second ends",
    ]
    assert steps.index("other begins") < steps.index("first ends")


async def test_a_change_that_fails_lets_the_next_one_in() -> None:
    changing = KeyedLock()

    async def fail() -> None:
        async with changing("A"):
            raise ValueError

    results = await asyncio.gather(fail(), fail(), return_exceptions=True)
    assert [type(result) for result in results] == [ValueError, ValueError]
    async with asyncio.timeout(1), changing("A"):
        pass
