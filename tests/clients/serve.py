"""Serve natsd with options given as JSON until terminated, for tests that measure the process."""

from __future__ import annotations

import asyncio
import json
import signal
import sys

import uvloop


async def serve(settings: str) -> None:
    from natsd.server import Server

    async with Server(**json.loads(settings)) as server:
        sys.stderr.write(f"Listening for client connections on 127.0.0.1:{server.client_port}\n")
        sys.stderr.write("Server is ready\n")
        sys.stderr.flush()
        terminated = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
        await terminated.wait()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
