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
    """Fails unless the response is valid for its `type`, or for `kind` where it carries none.

    Of a failed request only the error is looked at: the schemas leave open what stands beside it,
    and nats-server puts the empty fields of the response there.
    """
    if found := validator(kind or response["type"]):
        if "error" in response:
            return _check_error(response["error"])
        errors = sorted(found.iter_errors(response), key=lambda error: list(error.path))
        assert not errors, f"{response}\n" + "\n".join(error.message for error in errors[:3])
    return None


def _check_error(error: dict[str, Any]) -> None:
    """What every schema says of an error."""
    assert 300 <= error["code"] <= 699, error
    assert 0 <= error["err_code"] <= 65535, error
    assert error["description"], error
