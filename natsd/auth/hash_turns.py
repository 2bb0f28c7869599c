"""Slots for slow work that clients ask for, given to their addresses in turn.

    waiting   10.0.0.1: ● ● ● ● ● ●      a free slot goes to the address whose last turn is
              10.0.0.2: ●                longest ago: 10.0.0.2 waits for one turn, not for six

- An IPv4 address counts as itself, an IPv6 address as its network of 64 bits, as one site has it.
- At most `WAITING_OF_ADDRESS_MAX` wait of one address. If `WAITING_MAX` wait in all, one more takes
  the place of the newest of the address that has most waiting, unless that has hardly more.
"""

import asyncio
from collections import deque
from ipaddress import IPv6Address
from typing import Final

WAITING_OF_ADDRESS_MAX: Final = 4096
WAITING_MAX: Final = 16_384
_NETWORK_BITS: Final = 64


class HashTurns:
    """The slots of one server."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._waiting: dict[str, deque[asyncio.Future[bool]]] = {}  # the next turn comes first
        self._count = 0

    async def acquire(self, ip: str) -> bool:
        """Return True when a slot is free for this address, or False at once: too many wait."""
        if self._free:
            self._free -= 1
            return True
        network = network_of(ip)
        queue = self._waiting.get(network)
        if queue is not None and len(queue) >= WAITING_OF_ADDRESS_MAX:
            return False
        if self._count >= WAITING_MAX and not self._displace(0 if queue is None else len(queue)):
            return False
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(network, deque()).append(turn)
        self._count += 1
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._remove(network, turn)
            elif turn.result():
                self.release()
            raise

    def release(self) -> None:
        """Give a slot to the next address, or keep it free."""
        while self._waiting:
            network = next(iter(self._waiting))
            queue = self._waiting.pop(network)
            turn = queue.popleft()
            self._count -= 1
            if queue:
                self._waiting[network] = queue  # behind all others
            if not turn.done():
                turn.set_result(True)
                return
        self._free += 1

    def _displace(self, waiting: int) -> bool:
        """Refuse the newest of the address with most waiting, in favour of one with `waiting`.

        Return False if that address has at most one more waiting.
        """
        network, queue = max(self._waiting.items(), key=lambda item: len(item[1]))
        if len(queue) <= waiting + 1:
            return False
        turn = queue[-1]
        self._remove(network, turn)
        if not turn.done():
            turn.set_result(False)
        return True

    def _remove(self, network: str, turn: asyncio.Future[bool]) -> None:
        queue = self._waiting.get(network)
        if queue is not None and turn in queue:
            queue.remove(turn)
            self._count -= 1
            if not queue:
                del self._waiting[network]


def network_of(ip: str) -> str:
    """Return what counts as one address."""
    if ":" not in ip:
        return ip
    address = IPv6Address(ip)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> _NETWORK_BITS << _NETWORK_BITS))
