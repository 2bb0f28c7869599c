"""The application in the terminal: figures with sparklines above, a table below."""

import asyncio
from typing import Any, ClassVar, Final, Literal

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Input, Static

from natsd.top.endpoints import TopError
from natsd.top.source import Source
from natsd.top.texts import NOTHING, plain, short, size, sparkline
from natsd.top.views import VIEWS, Column, View, figures, headline

NAME_MAX: Final = 28
QUIET: Final = "dim"
BLUE: Final = "#5ea0f5"
GREEN: Final = "#3fbf93"
WIDE: Final = 100


class TopApp(App[None]):
    """Draws a source once per interval, until it is quit."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: $background; }
    #head, #tabs { height: 1; padding: 0 1; }
    #figures { height: 3; padding: 0 1; }
    #filter { display: none; height: 1; border: none; padding: 0 1; background: $boost; }
    #filter.shown { display: block; }
    DataTable { height: 1fr; background: $background; scrollbar-size: 1 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(number), f"view('{view.name}')", view.title, show=False)
            for number, view in enumerate(VIEWS, 1)
        ),
        Binding("tab", "next_view(1)", "View", priority=True),
        Binding("shift+tab", "next_view(-1)", "Previous view", show=False, priority=True),
        Binding("s", "sort(1)", "Sort"),
        Binding("S", "sort(-1)", "Sort by the previous column", show=False),
        Binding("r", "reverse", "Reverse"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "clear_filter", "Clear the filter", show=False),
        Binding("p,space", "pause", "Pause", key_display="p"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, source: Source, first: dict[str, Any], view: str, interval_s: float) -> None:
        super().__init__()
        self._source = source
        self._interval_s = interval_s
        self._summary = first
        self._view = next(each for each in VIEWS if each.name == view)
        self._sorts = {each.name: (each.sort, True) for each in VIEWS}
        self._filter = ""
        self._problem = ""
        self._is_paused = False
        self._head = Static(id="head")
        self._figures = Static(id="figures")
        self._tabs = Static(id="tabs")
        self._field = Input(placeholder="Filter", id="filter", compact=True)
        self._table: DataTable[Text] = DataTable(cursor_type="row")

    def compose(self) -> ComposeResult:
        """Yield the parts of the screen, from top to bottom."""
        yield from (self._head, self._figures, self._tabs, self._field, self._table, Footer())

    def on_mount(self) -> None:
        """Draw, and begin to read the source."""
        self._table.focus()
        self.draw()
        self.run_worker(self._read(), exclusive=True)

    async def _read(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            if self._is_paused:
                continue
            try:
                self._summary, self._problem = await asyncio.to_thread(self._source.summary), ""
            except TopError as error:
                self._problem = str(error)
            self.draw()

    # ---- drawing

    def draw(self) -> None:
        """Write the latest summary, unless the screen is being taken down."""
        if not self._table.is_attached:
            return
        self._draw_head()
        self._draw_table()

    def _draw_head(self) -> None:
        summary, width = self._summary, max(self.size.width - 2, 20)
        state = "Paused" if self._is_paused else "Lost" if self._problem else "Live"
        problems = [self._problem] if self._problem else summary["problems"]
        line = Text(plain(problems[0]), "bold red") if problems else Text(headline(summary))
        line.truncate(width - len(state) - 2, overflow="ellipsis", pad=True)
        line.append("  " + state, "bold green" if state == "Live" else "bold yellow")
        self._head.update(line)
        told = Text(no_wrap=True, overflow="ellipsis")
        for way, colour in (("in", BLUE), ("out", GREEN)):
            rates = summary["rates"]
            figure = (
                f"{short(rates.get(f'{way}_msgs')):>6}/s {size(rates.get(f'{way}_bytes')):>6}/s  "
            )
            bars = sparkline(summary["history"].get(f"{way}_msgs", []), width - 4 - len(figure))
            told.append(f"{way:<4}", QUIET).append(figure, "bold").append(bars + "\n", colour)
        gap = "   " if width > WIDE else " "
        for name, value in figures(summary):
            told.append(f"{name} ", QUIET).append(value + gap, "bold")
        self._figures.update(told)
        self._draw_tabs()

    def _draw_tabs(self) -> None:
        tabs, is_wide = Text(no_wrap=True, overflow="ellipsis"), self.size.width > WIDE
        for number, view in enumerate(VIEWS, 1):
            total = f" {short(self._summary[view.name]['total'])}" if is_wide else ""
            style = "reverse bold" if view is self._view else QUIET
            tabs.append(f" {number} {view.title}{total} ", style)
        if self._filter:
            tabs.append(f" /{self._filter}", "bold yellow")
        self._tabs.update(tabs)

    def _draw_table(self) -> None:
        table, view, now = self._table, self._view, self._summary["server"]["now"]
        sort, descending = self._sorts[view.name]
        at, scrolled = table.cursor_row, (table.scroll_x, table.scroll_y)
        rows = view.sorted(view.rows(self._summary, self._filter), now, sort, descending=descending)
        table.clear(columns=True)
        for index, column in enumerate(view.columns):
            arrow = (" ↓" if descending else " ↑") if index == sort else ""
            style = "bold" if index == sort else QUIET
            table.add_column(Text(column.title + arrow, style, justify=_side(column)))
        for row in rows:
            table.add_row(*self._cells(view, row, now))
        table.move_cursor(row=min(at, max(len(rows) - 1, 0)), scroll=False)
        table.scroll_to(*scrolled, animate=False)

    def _cells(self, view: View, row: dict[str, Any], now: str) -> list[Text]:
        cells = []
        for index, column in enumerate(view.columns):
            text = column.text(row, now)
            style = QUIET if text in ("0", "0B", NOTHING) else ""
            cell = Text(text, style, justify=_side(column))
            if column.is_text:
                cell.truncate(NAME_MAX if index == 0 else 2 * NAME_MAX, overflow="ellipsis")
            cells.append(cell)
        return cells

    # ---- keys

    def on_resize(self) -> None:
        """Fit the sparklines to the terminal."""
        self._draw_head()

    def action_view(self, name: str) -> None:
        """Show another table."""
        self._view = next(view for view in VIEWS if view.name == name)
        self._table.move_cursor(row=0)
        self.draw()

    def action_next_view(self, step: int) -> None:
        """Show the next table."""
        self.action_view(VIEWS[(VIEWS.index(self._view) + step) % len(VIEWS)].name)

    def action_sort(self, step: int) -> None:
        """Sort by the next column: numbers descending, texts ascending."""
        columns = self._view.columns
        index = (self._sorts[self._view.name][0] + step) % len(columns)
        self._sorts[self._view.name] = (index, not columns[index].is_text)
        self.draw()

    def action_reverse(self) -> None:
        """Reverse the order."""
        index, descending = self._sorts[self._view.name]
        self._sorts[self._view.name] = (index, not descending)
        self.draw()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by a column whose heading is clicked."""
        index, descending = self._sorts[self._view.name]
        is_same = index == event.column_index
        first = not self._view.columns[event.column_index].is_text
        self._sorts[self._view.name] = (event.column_index, not descending if is_same else first)
        self.draw()

    def action_filter(self) -> None:
        """Let the user write a filter."""
        self._field.add_class("shown")
        self._field.focus()

    def action_clear_filter(self) -> None:
        """Remove the filter."""
        self._field.value = ""
        self._end_filter()

    def _end_filter(self) -> None:
        self._field.remove_class("shown")
        self._table.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while the user writes."""
        self._filter = event.value
        self.draw()

    def on_input_submitted(self) -> None:
        """Return to the table; the filter stays."""
        self._end_filter()

    def action_pause(self) -> None:
        """Stop or continue to read the server."""
        self._is_paused = not self._is_paused
        self.draw()


def _side(column: Column) -> Literal["left", "right"]:
    return "left" if column.is_text else "right"
