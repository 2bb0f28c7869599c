"""A listener subscribes to very many subjects in steps."""

from natsd.core.routing import SubList
from natsd.core.steps import AT_ONCE, at_once
from natsd.jetstream.listening import Listening


def subjects(sublist: SubList) -> list[str]:
    return sorted(each.subject for each in sublist.subscriptions())


def test_what_is_new_comes_and_what_is_gone_goes() -> None:
    sublist = SubList()
    listening = Listening(sublist, b"0")
    at_once(listening.change(["a", "b.*"]))
    (kept,) = (each for each in sublist.subscriptions() if each.subject == "b.*")
    at_once(listening.change(["b.*", "c", "c"]))
    assert subjects(sublist) == ["b.*", "c"]
    assert kept in sublist
    at_once(listening.change(()))
    assert len(listening) == len(sublist) == 0


def test_a_later_change_takes_over_from_one_under_way() -> None:
    sublist = SubList()
    listening = Listening(sublist, b"0")
    beginning = listening.change([f"s.{number}" for number in range(3 * AT_ONCE)])
    next(beginning)
    assert len(sublist) == AT_ONCE
    at_once(listening.change(()))
    at_once(beginning)
    assert len(sublist) == 0
