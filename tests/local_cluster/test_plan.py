"""The ports of a new cluster."""

import contextlib
import socket

import pytest

from natsd.local_cluster.errors import LocalClusterError
from natsd.local_cluster.plan import FREE, LASTING, LOOPBACK, Plan, Ports, free_ports, taken_ports


def test_ports_follow_each_other() -> None:
    assert Plan().ports(0, 2) == [Ports(4222, 6222, 8222), Ports(4223, 6223, 8223)]
    assert Plan(port=5000).ports(2, 1) == [Ports(5002, 7002, 9002)]


def test_free_ports_are_different() -> None:
    found = [port for ports in Plan(port=FREE).ports(0, 5) for port in ports.all]
    assert len(set(found)) == 15


def test_free_ports_are_no_ports_of_connections() -> None:
    """A server that is started again finds its port."""
    with contextlib.ExitStack() as stack:
        for port in free_ports(LOOPBACK, 10):
            stack.enter_context(socket.create_server((LOOPBACK, port)))
            assert port in LASTING


def test_a_port_is_taken_while_somebody_listens() -> None:
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        assert taken_ports(LOOPBACK, [port]) == [port]
    assert taken_ports(LOOPBACK, [port]) == []


@pytest.mark.parametrize(
    ("plan", "count", "told"),
    [
        (Plan(), 0, "at least one server"),
        (Plan(name="a b"), 3, '"a b" is no name'),
        (Plan(name=""), 3, '"" is no name'),
        (Plan(port=65535), 3, "use 1 to 61533, or -1"),
        (Plan(port=0), 3, "use 1 to"),
    ],
)
def test_what_is_refused(plan: Plan, count: int, told: str) -> None:
    with pytest.raises(LocalClusterError, match=told):
        plan.check(count)
