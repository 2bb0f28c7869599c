"""A start imports only what the first client needs: a test without a clock."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, os, socket, sys, threading
import natsd.cli, natsd.server.jetstream, natsd.server.server

class NotYet:
    def import_module(name):
        threading.Event().wait()

def client(port):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        assert connection.recv(65536).startswith(b"INFO {")
        os.write(1, json.dumps(sorted(sys.modules)).encode())
        os._exit(0)

def serve(listener):
    port = bound_port(listener)
    threading.Thread(target=client, args=(port,)).start()
    return port

bound_port = natsd.server.server.bound_port
natsd.server.server.bound_port = serve
natsd.server.jetstream.importlib = NotYet
natsd.cli.main(sys.argv[1:])
"""

LATER = {
    *("aiohttp", "cramjam", "cryptography", "msgspec", "pydantic", "pydantic_core", "rich"),
    *("tempfile", "secrets", "hmac", "hashlib", "random"),
    "natsd.bench",
    "natsd.clients.client_info",
    "natsd.clients.closed",
    "natsd.clients.connect",
    "natsd.clients.redact",
    "natsd.clients.subscription_info",
    "natsd.clients.tracing",
    "natsd.clients.transport",
    "natsd.config.changes",
    "natsd.core.subject_mapping",
    "natsd.core.sublist_stats",
    "natsd.jetstream.jetstream",
    "natsd.jetstream.models",
    "natsd.monitor.endpoints",
    "natsd.monitor.event_messages",
    "natsd.monitor.http_server",
    "natsd.monitor.service_replies",
    "natsd.server.description",
    "natsd.server.lame_duck",
    "natsd.server.reload",
    "natsd.spark",
    "natsd.store",
    "natsd.trie",
}
"""Modules that no start needs before the first client has its INFO."""
MODULES_MAX = 60
"""Modules of natsd itself, of which each costs a file that is read."""


def imported(*flags: str) -> set[str]:
    """Return the modules that a server has imported when its first client has INFO."""
    command = [sys.executable, "-c", SCRIPT, "-a", "127.0.0.1", "-p", "-1", *flags]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("with_jetstream", [False, True])
def test_a_start_imports_only_what_the_first_client_needs(
    with_jetstream: bool, tmp_path: Path
) -> None:
    modules = imported(*(["-js", "-sd", str(tmp_path)] if with_jetstream else []))
    assert modules & LATER == set()
    assert "natsd.server.server" in modules
    assert len([name for name in modules if name.partition(".")[0] == "natsd"]) <= MODULES_MAX
    if not with_jetstream:
        assert "natsd.jetstream" not in modules
