"""The application of `natsd top`, driven key by key."""

from typing import Any

from rich.console import Console
from textual.widgets import DataTable, Static

from natsd.top.app import TopApp
from natsd.top.endpoints import TopError

NOW = "2026-11-23T10:00:00Z"


def stream(name: str, messages: int) -> dict[str, Any]:
    numbers = dict.fromkeys(("bytes", "consumers", "msgs_rate", "full"), 0)
    texts = dict.fromkeys(("account", "storage", "description"), "")
    times = {"first_ts": None, "last_ts": None}
    return {"name": name, "messages": messages, "subjects": [], **numbers, **texts, **times}


def summary() -> dict[str, Any]:
    empty: dict[str, Any] = {"total": 0, "rows": []}
    totals = dict.fromkeys(("mem", "connections", "subscriptions", "slow_consumers"), 0)
    names = ("connections", "consumers", "subjects", "accounts", "slow_consumers")
    server = {"id": "A", "name": "shop", "version": "1", "nats_version": "2", "host": "h"}
    rows = [stream("[bold]ORDERS", 5), stream("EVENTS", 70), stream("AUDIT", 1)]
    return {
        "server": server | {"port": 4222, "uptime_s": 60, "now": NOW},
        "problems": [],
        "totals": totals,
        "rates": {"in_msgs": 1500, "out_msgs": 20},
        "jetstream": None,
        "history": {"in_msgs": [1, 2], "out_msgs": [0, 0]},
        **dict.fromkeys(names, empty),
        "streams": {"total": 3, "rows": rows},
    }


class FakeSource:
    """A source that a test can let fail."""

    def __init__(self) -> None:
        self.reads = 0
        self.error = ""

    def summary(self) -> dict[str, Any]:
        self.reads += 1
        if self.error:
            raise TopError(self.error)
        return summary()


def names(app: TopApp) -> list[str]:
    table = app.query_one(DataTable)
    return [str(table.get_row_at(index)[0]) for index in range(table.row_count)]


def text(app: TopApp, part: str) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(app.query_one(part, Static).content)
    return captured.get()


async def test_keys_choose_the_view_the_order_and_the_rows() -> None:
    app = TopApp(FakeSource(), summary(), "connections", 60)
    async with app.run_test(size=(80, 24)) as pilot:
        assert names(app) == []
        await pilot.press("2", "s")
        assert names(app) == ["EVENTS", "[bold]ORDERS", "AUDIT"]
        await pilot.press("r")
        assert names(app) == ["AUDIT", "[bold]ORDERS", "EVENTS"]
        await pilot.press("S", "S")
        assert names(app) == ["[bold]ORDERS", "AUDIT", "EVENTS"]
        await pilot.press("slash", *"ord", "enter")
        assert names(app) == ["[bold]ORDERS"]
        await pilot.press("escape")
        assert len(names(app)) == 3
        await pilot.press("tab")
        assert names(app) == []
        await pilot.press("shift+tab")
        assert len(names(app)) == 3


async def test_figures_and_problems_are_above() -> None:
    source = FakeSource()
    app = TopApp(source, summary(), "streams", 0.01)
    async with app.run_test(size=(80, 24)) as pilot:
        assert "shop · natsd 1 (NATS 2)" in text(app, "#head")
        assert "1.50k/s" in text(app, "#figures")
        source.error = "nothing listens there"
        await _until(pilot, lambda: "nothing listens there" in text(app, "#head"))
        assert "Lost" in text(app, "#head")
        source.error = ""
        await _until(pilot, lambda: "shop" in text(app, "#head"))


async def test_a_pause_ends_reading() -> None:
    source = FakeSource()
    app = TopApp(source, summary(), "streams", 0.01)
    async with app.run_test() as pilot:
        await _until(pilot, lambda: source.reads > 1)
        await pilot.press("p")
        assert "Paused" in text(app, "#head")
        reads = source.reads
        await pilot.pause(0.3)
        assert source.reads <= reads + 1  # one was under way
        reads = source.reads
        await pilot.press("p")
        await _until(pilot, lambda: source.reads > reads)


async def test_quitting_ends_it() -> None:
    app = TopApp(FakeSource(), summary(), "streams", 60)
    async with app.run_test() as pilot:
        await pilot.press("q")
    assert app.return_code == 0


async def _until(pilot: Any, condition: Any) -> None:
    for _ in range(2000):
        if condition():
            return
        await pilot.pause(0.01)
    raise AssertionError("it never held")
