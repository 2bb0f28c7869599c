"""The name that the program was called by, which decides over its wording.

A symbolic link `nats-server` to natsd is a drop-in: messages and versions are nats-server's then.
"""

import sys
from pathlib import PurePath
from typing import Final

NAME: Final = "natsd"
STAND_IN: Final = "nats-server"


def program_name() -> str:
    """Return `nats-server` if the program was called by that name, else `natsd`."""
    called = PurePath(sys.argv[0]).name if sys.argv else NAME
    return STAND_IN if called.removesuffix(".exe") == STAND_IN else NAME


def is_stand_in() -> bool:
    """Return whether the program was called by the name of nats-server."""
    return program_name() == STAND_IN
