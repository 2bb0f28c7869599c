"""Configuration files of measured servers: JSON, which every reader of NATS's language accepts."""

import json
from pathlib import Path
from typing import Any

Settings = dict[str, Any]


def write_config(config: Path, settings: Settings) -> None:
    """Write the settings into a configuration file."""
    config.write_text(json.dumps(settings))
