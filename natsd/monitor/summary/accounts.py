"""The accounts of the summary: the busiest, and those with most connections or storage."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from natsd.accounts import Account
from natsd.core.steps import Steps
from natsd.monitor.observed import ObservedServer
from natsd.monitor.summary.meter import Meter, rounded
from natsd.monitor.summary.ranking import Ranking, shown

if TYPE_CHECKING:
    from natsd.jetstream.account import JetStreamAccount

ACCOUNTS_PER_STEP: Final = 64
FIRST_BY_EACH: Final = 20


@dataclass(slots=True, eq=False)
class MeasuredAccount:
    """An account, and its messages and bytes per second: in and out of each."""

    account: Account
    jetstream: "JetStreamAccount | None"
    rates: tuple[float, ...] | None

    @property
    def stored_bytes(self) -> int:
        """The bytes in its streams."""
        tiers = self.jetstream.tiers if self.jetstream else None
        return tiers.file_used + tiers.memory_used if tiers else 0

    def row(self) -> dict[str, Any]:
        """Return the account as the summary shows it; a limit of -1 means that there is none."""
        account, counters = self.account, self.account.counters
        in_msgs, out_msgs, in_bytes, out_bytes = map(rounded, self.rates or (None,) * 4)
        return {
            "name": shown(account.name),
            "name_tag": shown(account.name_tag),
            "is_system": account.is_system,
            "connections": account.connections,
            "subscriptions": account.sublist.count,
            "slow_consumers": counters.slow_consumers,
            "in_msgs": counters.in_msgs,
            "out_msgs": counters.out_msgs,
            "in_bytes": counters.in_bytes,
            "out_bytes": counters.out_bytes,
            "in_msgs_rate": in_msgs,
            "out_msgs_rate": out_msgs,
            "in_bytes_rate": in_bytes,
            "out_bytes_rate": out_bytes,
            **self._stored(),
        }

    def _stored(self) -> dict[str, Any]:
        if self.jetstream is None:
            return {"jetstream": False}
        tiers = self.jetstream.tiers
        return {
            "jetstream": True,
            "streams": len(self.jetstream.streams),
            "storage": tiers.file_used,
            "memory": tiers.memory_used,
            "max_storage": tiers.limits.max_storage,
            "max_memory": tiers.limits.max_memory,
        }


def choose_accounts(server: ObservedServer, meter: Meter) -> Steps[Ranking[MeasuredAccount]]:
    """Return the accounts to show."""
    served = server.jetstream.accounts if server.jetstream else {}
    ranking: Ranking[MeasuredAccount] = Ranking(3, FIRST_BY_EACH)
    for index, account in enumerate(list(server.accounts.values())):
        if index % ACCOUNTS_PER_STEP == ACCOUNTS_PER_STEP - 1:
            yield
        counters = account.counters
        traffic = (counters.in_msgs, counters.out_msgs, counters.in_bytes, counters.out_bytes)
        rates = meter.rates(account.name, traffic)
        measured = MeasuredAccount(account, served.get(account.name), rates)
        busy = rates[0] + rates[1] if rates else 0.0
        ranking.add(measured, (busy, account.connections, measured.stored_bytes))
    return ranking
