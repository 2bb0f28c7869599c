"""The JSON schemas that NATS publishes, if they are stored beside the repository.

Of an error answer only the envelope is checked: its schema allows either an error or the requested
result, and nearly every JSON object matches the latter.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parents[3]
SCHEMAS = ROOT.parent / "shared" / "nats" / "schemas"
ERRORS = ROOT.parent / "shared" / "nats" / "errors.json"

needs_schemas = pytest.mark.skipif(not SCHEMAS.exists(), reason="the schemas are not here")


@functools.cache
def schema_of(kind: str) -> dict[str, Any]:
    """Return the schema of a type such as `io.nats.jetstream.api.v1.stream_create_response`."""
    *path, name = kind.removeprefix("io.nats.").split(".")
    schema: dict[str, Any] = json.loads(SCHEMAS.joinpath(*path, f"{name}.json").read_text())
    return schema


def check(answer: dict[str, Any]) -> None:
    """Raise jsonschema.ValidationError if the answer breaks its schema; types without one pass."""
    if not SCHEMAS.exists() or answer["type"].endswith(".system_response"):
        return
    schema = schema_of(answer["type"])
    if "error" in answer:
        schema = {key: schema[key] for key in schema.keys() - {"oneOf", "properties"}}
        error = {"required": ["code", "err_code", "description"], "additionalProperties": False}
        error["properties"] = {
            "code": {"type": "integer", "minimum": 300, "maximum": 699},
            "err_code": {"type": "integer", "minimum": 10002, "maximum": 10223},
            "description": {"type": "string", "minLength": 1},
        }
        jsonschema.validate(answer["error"], error)
    jsonschema.Draft7Validator(schema).validate(answer)
