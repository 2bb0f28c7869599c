"""natsd: a NATS server you can pip install.

async with natsd.Server(port=-1) as server:
    client = await nats.connect(server.client_url)
"""

from typing import TYPE_CHECKING, Any

from natsd.version import VERSION as __version__

if TYPE_CHECKING:
    from natsd.server import Server as Server

__all__ = ["Server", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "Server":  # imported on first use: tools that only need the version start quickly
        from natsd.server import Server

        return Server
    raise AttributeError(f"module 'natsd' has no attribute {name!r}")
