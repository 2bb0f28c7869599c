"""A process that serves natsd with options given as JSON, for tests that measure the process."""

from __future__ import annotations

import asyncio
import json
import signal
import sys

from natsd.server import threaded
from tests.clients.serving import inherited


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
    with inherited().chosen(), asyncio.Runner(loop_factory=threaded.loop_factory()) as runner:
        runner.run(serve(sys.argv[1]))
