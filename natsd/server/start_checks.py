"""Checks of a start that need nothing but the settings and their files.

`natsd -t`, `natsd config` and reload make them too, so that a file that they accept is one that a
server starts with.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from natsd.config import Options
from natsd.config.load import load_options
from natsd.config.loaded import LoadedConfig


def load_checked(path: Path | str, flags: Mapping[str, Any] | None = None) -> LoadedConfig:
    """Return the options of a file and the command line, with all checks. Raises OptionsError."""
    return load_options(path, flags, further_check=check_start)


def check_start(options: Options) -> None:
    """Check what accounts share, and whom the server trusts. Raises OptionsError."""
    if options.shares:
        from natsd.server.sharing import check_sharing

        check_sharing(options)
    if options.operators or options.trusted_keys or options.resolver is not None:
        from natsd.auth.operator.trust import read_preload, read_trust

        read_trust(options)
        read_preload(options)
