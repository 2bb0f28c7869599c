"""Frames on `$NRG.F.…` in the system account of a real server."""

from natsd import Server
from natsd.raft.account_transport import SUBJECT, AccountTransport
from natsd.raft.transport import server_key
from tests.raft.driver.network import Network, start_server
from tests.waiting import eventually_within


async def test_a_group_runs_on_the_system_account() -> None:
    """Three hosts share one server's account; a large snapshot and entry go in several frames."""
    async with Server(host="127.0.0.1", port=-1) as server:
        client = server.system_account.internal_client
        network, servers = Network(), []
        for number in (1, 2, 3):
            transport = AccountTransport(client, number, frame_bytes_max=4096)
            servers.append(start_server(network, number, transport=transport))
        groups = [await each.start_group("g", (1, 2, 3)) for each in servers]
        await eventually_within(lambda: any(group.is_leader for group in groups))
        leader = next(group for group in groups if group.is_leader)
        assert await leader.propose(bytes(20_000)) == 1
        await eventually_within(lambda: all(s.registers["g"].count == 1 for s in servers))
        for each in servers:
            await each.host.close()
        assert network.frames == 0


def test_subjects_name_the_server() -> None:
    assert SUBJECT.format(server_key("a")) != SUBJECT.format(server_key("b"))
    assert SUBJECT.format(255) == "$NRG.F.0000000000ff"
