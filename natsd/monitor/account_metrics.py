"""The metrics of accounts: `gnatsd_accstatz_*` and `gnatsd_accountz_*`, with one row per account.

Source: prometheus-nats-exporter's `accstatzCollector` and `accountzCollector`.
"""

import time
from typing import Any, Final

from natsd.accounts import Account
from natsd.core.steps import Steps
from natsd.core.wall_time import SECOND_NS
from natsd.monitor.jwt_facts import claims_of, nats_claims_of
from natsd.monitor.metric_text import Gauges, Row, label_text, row
from natsd.monitor.observed import ObservedServer

ACCOUNTS_PER_STEP: Final = 5


def _named(endpoint: str, *names: str) -> Gauges:
    """Return gauges whose help is their name."""
    return tuple((f"{endpoint}_{name}", name) for name in names)


TRAFFIC: Final[Gauges] = _named(
    "accstatz",
    "current_connections",
    "total_connections",
    "subscriptions",
    "leaf_nodes",
    "sent_messages",
    "sent_bytes",
    "received_messages",
    "received_bytes",
    "slow_consumers",
)
LIMITS: Final = ("subs", "data", "payload", "imports", "exports", "wildcards", "conn", "leaf")
"""The limits in an account's JWT; without a JWT all are shown as 0."""
DETAILS: Final[Gauges] = _named(
    "accountz",
    "client_connections",
    "leafnode_connections",
    "subscriptions",
    "is_system",
    "expired",
    "complete",
    "jetstream_enabled",
    *(f"limit_{name}" for name in LIMITS),
)


def account_rows(server: ObservedServer, server_id: str) -> Steps[tuple[list[Row], list[Row]]]:
    """Return, in steps, the rows of `TRAFFIC` and those of `DETAILS`."""
    engine = server.jetstream
    uses_jetstream = set() if engine is None else set(engine.accounts)
    traffic: list[Row] = []
    details: list[Row] = []
    for index, account in enumerate(list(server.accounts.values())):
        if index % ACCOUNTS_PER_STEP == ACCOUNTS_PER_STEP - 1:
            yield
        named = {"account_id": account.name, "account_name": account.name_tag}
        labels = label_text(server_id=server_id, account=account.name, **named)
        traffic.append(row(labels, _traffic(account)))
        labels = label_text(server_id=server_id, **named)
        details.append(row(labels, _details(account, account.name in uses_jetstream)))
    return traffic, details


def _traffic(account: Account) -> tuple[int, ...]:
    counters = account.counters
    return (
        account.connections,
        account.connections,
        account.sublist.count,
        0,
        counters.out_msgs,
        counters.out_bytes,
        counters.in_msgs,
        counters.in_bytes,
        counters.slow_consumers,
    )


def _details(account: Account, uses_jetstream: bool) -> tuple[int | float, ...]:
    claims = claims_of(account.description.jwt)
    expires = claims.get("exp")
    is_expired = isinstance(expires, int) and 0 < expires * SECOND_NS <= time.time_ns()
    limits = nats_claims_of(claims).get("limits")
    return (
        account.connections,
        0,
        account.sublist.count,
        int(account.is_system),
        int(is_expired),
        1,
        int(uses_jetstream),
        *(_number(limits, name) for name in LIMITS),
    )


def _number(limits: Any, name: str) -> int | float:
    """Return a limit of a JWT; true is 1, and anything that is no number is 0."""
    value = limits.get(name) if isinstance(limits, dict) else 0
    return value + 0 if isinstance(value, int | float) else 0
