"""Work in steps has the same result at once and in turns with other tasks."""

import pytest

from natsd.core.steps import Steps, at_once, run_cooperatively


async def test_steps_end_with_their_result_or_error() -> None:
    def work(*, fails: bool) -> Steps[int]:
        yield
        if fails:
            raise ValueError
        return 7

    assert at_once(work(fails=False)) == await run_cooperatively(work(fails=False)) == 7
    with pytest.raises(ValueError):
        await run_cooperatively(work(fails=True))
