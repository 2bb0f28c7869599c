"""Reports for people and for programs."""

import io
import json
from xml.etree import ElementTree

from natsd.bench import plot, report
from natsd.bench.compare import Plan
from natsd.bench.cores import core_steps, verdicts
from natsd.bench.machine import Machine, clients_max
from natsd.bench.rows import METRICS
from tests.bench.fakes import result, texts

LABELS = ["natsd 1.0", "nats-server 2.0"]


def test_values_carry_their_unit() -> None:
    assert report.value_text(13_900_000, METRICS["messages"]) == "13.90 M msg/s"
    assert report.value_text(17_274.3, METRICS["clients"]) == "17,274 clients/s"
    assert report.value_text(41.42, METRICS["latency"]) == "41.4 µs"
    assert report.value_text(20_700, METRICS["memory"]) == "20.7 KB"


def test_a_row_says_whether_its_goal_is_met() -> None:
    rows = [result(6e6, 2e6, goal=2.5), result(4e6, 2e6, goal=2.5), result(4e6, 2e6)]
    assert texts(report.table_rows(rows, compared=True, goals=True)) == (
        "a row | 6.00 M msg/s | 2.00 M msg/s | 3.00 | ≥ 2.5  met\n"
        "a row | 4.00 M msg/s | 2.00 M msg/s | 2.00 | ≥ 2.5  MISSED\n"
        "a row | 4.00 M msg/s | 2.00 M msg/s | 2.00 | "
    )


def test_a_row_that_lost_messages_is_void() -> None:
    rows = [result(6e6, 2e6, goal=2.5, missing=1_234)]
    assert texts(report.table_rows(rows, compared=True, goals=True)) == (
        "a row | void: 1,234 lost | 2.00 M msg/s |  | ≥ 2.5  MISSED"
    )


def test_away_from_a_terminal_the_table_is_markdown() -> None:
    stream = io.StringIO()
    rows = report.table_rows([result(6e6, 2e6)], compared=True, goals=False)
    report.print_table(report.headings(LABELS, compared=True, goals=False), rows, stream)
    assert [line.strip() for line in stream.getvalue().splitlines() if line.strip()] == [
        "|       |    natsd 1.0 | nats-server 2.0 | ratio |",
        "|-------|--------------|-----------------|-------|",
        "| a row | 6.00 M msg/s |    2.00 M msg/s |  3.00 |",
    ]


def test_notes_name_failures_noise_and_a_load_at_its_limit() -> None:
    noisy = result(6e6, 2e6)
    noisy.cells[0].values = [4e6, 6e6]
    failed = result(6e6, 2e6)
    failed.cells[1].problem = "subscriber: the server closed the connection"
    busy = result(6e6, 2e6)
    busy.cells[0].load_share = 0.97
    assert report.notes([noisy, failed, busy], LABELS) == [
        "a row, nats-server 2.0: subscriber: the server closed the connection",
        "* a load process was busy more than 90% of the time: the server may be faster than shown",
        "rounds differ by more than 25 % of the median in: a row",
    ]


def test_json_holds_every_run() -> None:
    data = report.as_json(Machine.here_and_now(), Plan(), LABELS, [result(6e6, 2e6, goal=2.5)])
    shown = json.loads(json.dumps(data))
    assert shown["servers"] == LABELS
    assert shown["machine"]["cores"] >= 1
    assert shown["rows"][0]["ratio"] == 3.0
    assert [cell["values"] for cell in shown["rows"][0]["cells"]] == [[6e6], [2e6]]


def test_the_plot_is_well_formed_and_has_a_bar_per_compared_row() -> None:
    rows = [result(6.0, 2.0, goal=2.5), result(6.0, 12.0, metric="latency"), result(6.0)]
    picture = ElementTree.fromstring(plot.svg("natsd <1> & more", "here", rows))
    bars = list(picture.iter("{http://www.w3.org/2000/svg}rect"))
    assert len(bars) == 1 + 2  # the background, and one bar per row with a ratio


def test_the_plot_turns_lower_is_better_around() -> None:
    assert plot.times_better(0.5, higher_is_better=False) == 2.0
    assert plot.times_better(0.5, higher_is_better=True) == 0.5


def test_the_line_on_cores_says_from_how_many_on() -> None:
    assert core_steps(2) == [1, 2]
    assert core_steps(10) == [1, 2, 3, 4, 6, 8, 10]
    overtaken, not_overtaken = result(4.0, 2.0, 5.0), result(4.0, 2.0, 3.0)
    lines = verdicts([overtaken, not_overtaken], [1, 2], machine_cores=2)
    assert lines[:2] == [
        "a row: overtaken from 2 cores on",
        "a row: not overtaken with up to 2 cores",
    ]
    assert "nothing is claimed beyond that" in lines[2]


def test_the_machine_is_named() -> None:
    machine = Machine.here_and_now()
    assert machine.date.endswith("UTC")
    assert machine.processor
    assert f"{machine.cores} core" in str(machine)
    assert clients_max() > 0
