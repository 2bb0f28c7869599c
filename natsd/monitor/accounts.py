"""`/accountz` and `/accstatz`: the accounts, their imports and exports, and their traffic.

Beside what the settings say, every account imports the services of the system account that the
tables of `natsd.monitor.service_table` name.

Sources: nats-server's `Accountz`, `AccountInfo` and `AccountStat`: field names and their order.
"""

import time
from collections.abc import Set
from typing import Any, Final

from natsd.accounts.account import Account, AccountDescription
from natsd.core.wall_time import SECOND_NS
from natsd.monitor.account_sharing import revoked, service_import_row, shares
from natsd.monitor.clock import Clock
from natsd.monitor.jwt_facts import claims_of, nats_claims_of
from natsd.monitor.observed import ObservedServer
from natsd.monitor.query import BadParameter
from natsd.monitor.service_table import EXPORTS, IMPORTS
from natsd.monitor.values import number, timestamp

JETSTREAM_API: Final = "$JS.API.>"

NO_TRAFFIC: Final = {"msgs": 0, "bytes": 0}


def accountz(server: ObservedServer, account: str, clock: Clock) -> dict[str, Any]:
    """Return the answer to `/accountz`; raises BadParameter if there is no such account.

    With an empty `account` the answer lists the names of all accounts.
    """
    answer: dict[str, Any] = {"server_id": server.id, "now": timestamp(clock.wall_ns())}
    if server.accounts.has_system:
        answer["system_account"] = server.accounts.system.name
    if not account:
        return answer | {"accounts": iter(tuple(server.accounts))}
    return answer | {"account_detail": account_detail(server, account)}


def account_detail(server: ObservedServer, name: str) -> dict[str, Any]:
    """Return the details of one account; raises BadParameter if there is no such account."""
    account = server.accounts.get(name)
    if account is None:
        raise BadParameter(f"Account {name} does not exist")
    is_system = account.is_system
    description = account.description
    uses_jetstream = server.jetstream is not None and name in server.jetstream.accounts
    claims = claims_of(description.jwt)
    expires = claims.get("exp")
    detail = {
        "account_name": name,
        "update_time": timestamp(description.updated_ns),
        **({"is_system": True} if is_system else {}),
        "expired": isinstance(expires, int) and 0 < expires * SECOND_NS <= time.time_ns(),
        "complete": True,
        "jetstream_enabled": uses_jetstream,
        "leafnode_connections": 0,
        "client_connections": account.connections,
        "subscriptions": account.sublist.count,
    }
    shared = shares(server.links, description)
    if is_system:
        shared["exports"] += _exports(has_jetstream=server.jetstream is not None)
    if server.accounts.has_system:
        system = server.accounts.system.name
        has_jetstream = server.jetstream is not None and not is_system
        shared["imports"] += _imports(name, system, has_jetstream=has_jetstream)
    detail |= {name: rows for name, rows in shared.items() if rows}
    detail |= _of_jwt(description, claims)
    stats = account.sublist.stats().to_json()
    return detail | {"sublist_stats": {field: number(value) for field, value in stats.items()}}


def _of_jwt(description: AccountDescription, claims: dict[str, Any]) -> dict[str, Any]:
    """Return the members that describe the account's JWT; without one, the name tag alone."""
    if not claims:
        return {"name_tag": description.name_tag}
    nats = nats_claims_of(claims)
    told = {
        "jwt": description.jwt,
        "issuer_key": claims.get("iss"),
        "name_tag": description.name_tag,
        "tags": nats.get("tags"),
        "decoded_jwt": claims,
        "revoked_user": revoked(nats.get("revocations") or {}),
    }
    return {name: value for name, value in told.items() if value}


def _exports(*, has_jetstream: bool) -> list[dict[str, str]]:
    rows = [*EXPORTS, *([(JETSTREAM_API, "Singleton")] if has_jetstream else [])]
    return [
        {"subject": subject, "type": "service", "response_type": response}
        for subject, response in rows
    ]


def _imports(name: str, system: str, *, has_jetstream: bool) -> list[dict[str, Any]]:
    rows = [
        (local, subject.format(account=name), share)
        for local, subject, share in IMPORTS
        if share or name != system
    ]
    if has_jetstream:
        rows.append((JETSTREAM_API, JETSTREAM_API, True))
    return [
        service_import_row(subject, system, local, share=share) for local, subject, share in rows
    ]


def shown_accounts(
    server: ObservedServer, names: Set[str] = frozenset(), *, unused: bool = False
) -> list[Account]:
    """Return the accounts in `names`, or all; without `unused` only those with connections."""
    return [
        account
        for name, account in server.accounts.items()
        if (not names or name in names) and (unused or account.connections)
    ]


def accstatz(server: ObservedServer, clock: Clock, accounts: list[Account]) -> dict[str, Any]:
    """Return the answer to `/accstatz`; its rows are made while they are written."""
    return {
        "server_id": server.id,
        "now": timestamp(clock.wall_ns()),
        "account_statz": (account_stats(account) for account in accounts),
    }


def account_stats(account: Account) -> dict[str, Any]:
    """Return the connections and traffic of one account."""
    counters = account.counters
    return {
        "acc": account.name,
        "name": account.name_tag,
        "conns": account.connections,
        "leafnodes": 0,
        "total_conns": account.connections,
        "num_subscriptions": account.sublist.count,
        "sent": {"msgs": counters.out_msgs, "bytes": counters.out_bytes}
        | _by_servers(counters.out_route_msgs, counters.out_route_bytes),
        "received": {"msgs": counters.in_msgs, "bytes": counters.in_bytes}
        | _by_servers(counters.in_route_msgs, counters.in_route_bytes),
        "slow_consumers": counters.slow_consumers,
    }


def _by_servers(msgs: int, size: int) -> dict[str, Any]:
    """Return the part of the traffic that other servers have, which is that of routes."""
    return {"gateways": NO_TRAFFIC, "routes": {"msgs": msgs, "bytes": size}, "leafs": NO_TRAFFIC}
