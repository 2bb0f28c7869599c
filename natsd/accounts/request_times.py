"""The responder's side of the latency of services: how long requests of other servers took here.

    request of a peer ─▶ request    its reply subject and the time are remembered
    its response      ─▶ response   the peer is told how long it took, and who answered

The other side, with a drawing of both, is remote_latency.py.

Source: nats-server's `trackRemoteReply` and `processInboundClientMsg` (server/client.go).
"""

import time
from typing import TYPE_CHECKING, Final

import msgspec

from natsd.core.wall_time import timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from natsd.accounts.account import Account
    from natsd.accounts.service_latency import Describe
    from natsd.core.network import Session

REQUESTS_MAX: Final = 16_384
"""Requests of other servers that are measured at a time; the oldest ones are forgotten."""


class RequestTimes:
    """The responder's side: when requests of other servers were delivered here."""

    def __init__(self, system: "Account", describe: "Describe") -> None:
        """Tell other servers in the system account; `describe` describes a responder."""
        self._system = system
        self._describe = describe
        self._requests: dict[bytes, tuple[str, int]] = {}

    def request(self, account: str, reply: bytes) -> None:
        """Remember that a request in an account is delivered now."""
        if len(self._requests) >= REQUESTS_MAX:
            del self._requests[next(iter(self._requests))]
        self._requests[reply] = account, time.time_ns()

    def response(self, reply: bytes, responder: "Session | None") -> None:
        """Tell the server of the requestor of the response, if it is the first one."""
        known = self._requests.pop(reply, None)
        if known is None:
            return
        account, start_ns = known
        taken_ns = max(time.time_ns() - start_ns, 0)
        info = dict(self._describe(responder, account, "", True, True))
        rtt_ns = _rtt_ns(info)
        service_ns = max(taken_ns - rtt_ns, 0)
        told = {
            "account": account,
            "req_id": reply.decode(errors="replace"),
            "m2": {
                "status": 200,
                "responder": info,
                "start": timestamp(start_ns),
                "service": service_ns,
                "system": 0,
                "total": service_ns + rtt_ns,
            },
        }
        server = reply.rsplit(b".", 2)[1].decode(errors="replace")
        self._system.internal_client.publish(f"$SYS.LATENCY.M2.{server}", msgspec.json.encode(told))


def _rtt_ns(info: "Mapping[str, object]") -> int:
    found = info.get("rtt", 0)
    return found if isinstance(found, int) else 0
