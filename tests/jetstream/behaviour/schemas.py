"""The JSON schemas that NATS publishes, and a check of responses against them.

The schemas are stored beside the repository, in `../shared/nats/schemas`; without them nothing is
checked.
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
    """Return the validator of a type such as `io.nats.jetstream.api.v1.stream_create_response`.

    None: the schemas are not there.
    """
    room, *path, name = kind.removeprefix(PREFIX).split(".")
    file = SCHEMAS.joinpath(room, *path, name + ".json")
    if not SCHEMAS.exists():
        return None
    assert file.exists(), f"{kind} is no type that NATS publishes"
    return jsonschema.Draft7Validator(json.loads(file.read_text()))


def check(response: dict[str, Any], kind: str = "") -> None:
    """Fail unless the response is valid for its `type`, or for `kind` if it has none.

    Of a failed request only the error is checked: the schemas leave open which members stand beside
    it, and nats-server sends the empty members of the response.
    """
    if found := validator(kind or response["type"]):
        if "error" in response:
            return _check_error(response["error"])
        errors = sorted(found.iter_errors(response), key=lambda error: list(error.path))
        assert not errors, f"{response}\n" + "\n".join(error.message for error in errors[:3])
    return None


def _check_error(error: dict[str, Any]) -> None:
    """Check the members that every schema requires of an error."""
    assert 300 <= error["code"] <= 699, error
    assert 0 <= error["err_code"] <= 65535, error
    assert error["description"], error
