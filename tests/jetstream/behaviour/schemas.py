"""The JSON schemas that NATS publishes, and whether a response is as they say.

They stand beside the repository, in `../shared/nats/schemas`; without them nothing is checked.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jsonschema

SCHEMAS = Path(__file__).resolve().parents[4] / "shared" / "nats" / "schemas"
PREFIX = "io.nats."


@functools.cache
def validator(kind: str) -> jsonschema.Draft7Validator | None:
    """Of a type such as `io.nats.jetstream.api.v1.stream_create_response`."""
    room, *path, name = kind.removeprefix(PREFIX).split(".")
    file = SCHEMAS.joinpath(room, *path, name + ".json")
    if not SCHEMAS.exists():
        return None
    assert file.exists(), f"{kind} is no type that NATS publishes"
    return jsonschema.Draft7Validator(json.loads(file.read_text()))


def check(response: dict[str, Any], kind: str = "") -> None:
    """Fails unless the response is valid for its `type`, or for `kind` where it carries none."""
    if found := validator(kind or response["type"]):
        errors = sorted(found.iter_errors(response), key=lambda error: list(error.path))
        assert not errors, f"{response}\n" + "\n".join(str(error) for error in errors[:3])
