"""Serve natsd with the options given as JSON until terminated, for tests that measure its process."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys


async def serve(settings: str) -> None:
    from natsd.server import Server

    async with Server(**json.loads(settings)) as server:
        print(f"Listening for client connections on 127.0.0.1:{server.client_port}", file=sys.stderr)
        print("Server is ready", file=sys.stderr, flush=True)
        terminated = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
        await terminated.wait()


if __name__ == "__main__":
    import uvloop

    logging.basicConfig(level=logging.ERROR)
    uvloop.run(serve(sys.argv[1]))
