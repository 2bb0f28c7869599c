"""Listening sockets."""

from __future__ import annotations

import socket

from natsd.clients.listener import bound_port, listen


def test_a_connection_that_is_not_accepted_yet_sends_small_messages_at_once() -> None:
    """One that waited in the queue would hold a message back until the last one is acknowledged."""
    with (
        listen("127.0.0.1", -1) as listener,
        socket.create_connection(("127.0.0.1", bound_port(listener))),
    ):
        listener.setblocking(True)
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
