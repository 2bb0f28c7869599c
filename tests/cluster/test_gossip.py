"""What servers tell each other of a new peer."""

import pytest

from natsd.cluster import gossip
from natsd.cluster.gossip import GossipMode
from natsd.cluster.peer_info import PeerInfo, decode_info
from natsd.cluster.targets import Target

FORWARDED = [
    # mode of the dial, mode in the peer's INFO, solicited, configured
    (0, 0, False, False, True),
    (0, 0, True, True, True),
    (0, 0, True, False, False),
    (2, 0, True, False, True),
    (1, 0, True, False, False),
    (0, 1, False, False, False),
    (0, 1, True, True, False),
]


@pytest.mark.parametrize(("mode", "peers_mode", "solicited", "configured", "expected"), FORWARDED)
def test_news_is_forwarded(
    mode: int, peers_mode: int, solicited: bool, configured: bool, expected: bool
) -> None:
    info = PeerInfo(gossip_mode=peers_mode)
    told = gossip.is_forwarded(info, mode, is_solicited=solicited, is_configured=configured)
    assert told == expected


MODES = [
    # solicited, configured, the receiver's route is configured
    (True, True, False, GossipMode.OVERRIDE),
    (True, False, True, GossipMode.DEFAULT),
    (False, False, True, GossipMode.OVERRIDE),
    (False, False, False, GossipMode.DISABLED),
]


@pytest.mark.parametrize(("solicited", "configured", "receiver", "mode"), MODES)
def test_the_mode_depends_on_both_routes(
    solicited: bool, configured: bool, receiver: bool, mode: GossipMode
) -> None:
    found = gossip.forwarded_mode(
        is_solicited=solicited, is_configured=configured, is_receiver_configured=receiver
    )
    assert found is mode


def test_news_has_no_nonce() -> None:
    info = PeerInfo(server_id="N", nonce="x")
    told = decode_info(gossip.gossip_line(info, GossipMode.OVERRIDE)[5:])
    assert (told.nonce, told.gossip_mode) == ("", 2)
    assert (info.nonce, info.gossip_mode) == ("x", 0)


def test_a_server_is_dialed_with_our_credentials_if_it_asks_for_some() -> None:
    info = PeerInfo(ip="nats-route://10.0.0.1:6222/", auth_required=True)
    assert gossip.target_of(info, "u", "p") == Target("10.0.0.1", 6222, "u", "p")
    info.auth_required = False
    assert gossip.target_of(info, "u", "p") == Target("10.0.0.1", 6222)
    assert gossip.target_of(PeerInfo(ip="nats-route://[::1"), "", "") is None
    assert gossip.target_of(PeerInfo(ip="nats-route://a"), "", "") is None


def test_a_configured_server_is_known_by_its_host_or_its_url() -> None:
    targets = [Target("A", 6222), Target("::1", 6222)]
    assert gossip.is_among(PeerInfo(host="a", port=6222), targets)
    assert gossip.is_among(
        PeerInfo(host="0.0.0.0", port=6222, ip="nats-route://[::1]:6222/"), targets
    )
    assert not gossip.is_among(PeerInfo(host="a", port=6223), targets)
    assert not gossip.is_among(PeerInfo(host="b", port=6222, ip="nats-route://c:6222/"), targets)


def test_a_target_shows_no_password() -> None:
    target = Target.from_url("nats://us%40er:s3cret@host:6222", is_configured=True)
    assert (target.user, target.password) == ("us@er", "s3cret")
    assert str(target) == "nats-route://us@er:xxxxx@host:6222"
    assert "s3cret" not in repr(target)
