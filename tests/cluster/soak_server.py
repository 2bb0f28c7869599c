"""One server of the soak (soak.py), in a process of its own, which tells what it knows.

    python -m tests.cluster.soak_server NAME PORT CLUSTER_PORT [PORT OF ANOTHER'S ROUTES]...

Each line on its input is answered with a JSON object (`Report`); SIGTERM ends it.
"""

import asyncio
import json
import logging
import signal
import sys
from typing import Any

import uvloop

from natsd import Server
from tests.cluster.interest import Interest, known_by_peer, local_interest

ACCOUNTS: dict[str, Any] = {
    "A": {"users": [{"user": "a", "password": "-"}], "exports": [{"stream": "news.>"}]},
    "B": {
        "users": [{"user": "b", "password": "-"}],
        "imports": [{"stream": {"account": "A", "subject": "news.>"}, "prefix": "from"}],
    },
}

CLOSED_MAX = 10
"""Closed clients that are kept for /connz: with more of them, memory grows until all are there."""


def shown(interest: dict[Interest, int]) -> dict[str, int]:
    """Return interest as JSON has it."""
    return {
        f"{subject.decode()} {(queue or b'').decode()}": weight
        for (subject, queue), weight in interest.items()
    }


def report(server: Server) -> dict[str, Any]:
    """Return what the server has and knows, by account."""
    return {
        "local": {
            name: shown(local_interest(account.sublist))
            for name, account in server.accounts.items()
        },
        "known": {
            peer: {account: shown(found) for account, found in accounts.items()}
            for peer, accounts in known_by_peer(server).items()
        },
        "clients": len(server.clients),
        "subscriptions": sum(account.sublist.count for account in server.accounts.values()),
        "in_msgs": server.reactor.counters.in_msgs,
        "out_msgs": server.reactor.counters.out_msgs,
    }


async def serve(name: str, port: int, cluster_port: int, others: list[int]) -> None:
    cluster = {
        "name": "soak",
        "host": "127.0.0.1",
        "port": cluster_port,
        "accounts": ["A"],
        "routes": [f"nats-route://127.0.0.1:{other}" for other in others],
    }
    server = Server(
        host="127.0.0.1",
        port=port,
        server_name=name,
        cluster=cluster,
        accounts=ACCOUNTS,
        max_closed_clients=CLOSED_MAX,
    )
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    questions = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(questions), sys.stdin)

    async def answer() -> None:
        while await questions.readline():
            sys.stdout.write(json.dumps(report(server)) + "\n")
            sys.stdout.flush()
        ended.set()

    async with server, asyncio.TaskGroup() as tasks:
        task = tasks.create_task(answer())
        await ended.wait()
        task.cancel()


if __name__ == "__main__":
    logging.getLogger("natsd").setLevel(logging.CRITICAL)  # restarts make errors without number
    own_name, *ports = sys.argv[1:]
    uvloop.run(serve(own_name, int(ports[0]), int(ports[1]), [int(each) for each in ports[2:]]))
