"""Parameters that cannot be read are refused with nats-server's texts."""

from collections.abc import Callable

import pytest

from natsd.monitor.query import BadParameter, Query, read_parameters
from natsd.monitor.service_requests import HealthzOptions, LeafzOptions, query_of

REFUSED: list[tuple[Callable[[Query], object], str, str]] = [
    (
        lambda query: query.flag("x"),
        "zz",
        "Error decoding boolean for 'x': strconv.ParseBool: parsing \"zz\": invalid syntax",
    ),
    (
        lambda query: query.whole("x"),
        "a",
        "Error decoding int for 'x': strconv.Atoi: parsing \"a\": invalid syntax",
    ),
    (
        lambda query: query.whole("x"),
        "99999999999999999999",
        "Error decoding int for 'x': strconv.Atoi: parsing \"99999999999999999999\": "
        "value out of range",
    ),
    (
        lambda query: query.unsigned("x"),
        "-1",
        "Error decoding uint64 for 'x': strconv.ParseUint: parsing \"-1\": invalid syntax",
    ),
    (
        lambda query: query.unsigned("x"),
        "9" * 5000,
        "Error decoding uint64 for 'x': strconv.ParseUint: parsing \"" + "9" * 5000 + '": '
        "value out of range",
    ),
]


@pytest.mark.parametrize(("read", "text", "error"), REFUSED)
def test_refused(read: Callable[[Query], object], text: str, error: str) -> None:
    with pytest.raises(BadParameter) as caught:
        read(Query({"x": text}))
    assert str(caught.value) == error


def test_absent_parameters_are_zero() -> None:
    query = Query({})
    assert (query.text("x"), query.flag("x"), query.whole("x"), query.unsigned("x")) == (
        "",
        False,
        0,
        0,
    )


def test_read() -> None:
    query = Query({"yes": "True", "no": "f", "minus": "-4", "plus": "+4", "big": str(2**64 - 1)})
    assert query.flag("yes")
    assert not query.flag("no")
    assert query.whole("minus") == -4
    assert query.whole("plus") == 4
    assert query.unsigned("big") == 2**64 - 1


@pytest.mark.parametrize(
    ("text", "parameters"),
    {
        "": {},
        "a=1&b=%2B+c": {"a": "1", "b": "+ c"},
        "a=1&a=2": {"a": "1"},
        "&&a&b=&": {"a": "", "b": ""},
        "a=1;b=2&c=3": {"c": "3"},
        "a=%zz&b=%4&c=3": {"c": "3"},
        "a=%ff": {"a": "\ufffd"},
    }.items(),
)
def test_parameters_are_read_as_go_reads_them(text: str, parameters: dict[str, str]) -> None:
    assert read_parameters(text) == parameters


def test_services_name_the_account_as_their_endpoints_do() -> None:
    assert query_of(LeafzOptions(account="A")).parameters == {"acc": "A"}
    asked = HealthzOptions(account="A", stream="S", details=True)
    assert query_of(asked).parameters == {"account": "A", "stream": "S", "details": "true"}
