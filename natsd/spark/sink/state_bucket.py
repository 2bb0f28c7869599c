"""The key-value bucket in which writers store their progress.

Promise
- `create` and `update` are compare-and-set: of two concurrent calls, one succeeds. Reads are
  answered by the stream's leader, so they see every write that was acknowledged before.
- The bucket is created if it does not exist (one replica, history of one, on disk); an existing
  bucket, for example with more replicas, is used unchanged.

Source: ADR-8 (key-value stores).
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import Any, Final

from natsd.core.wall_time import parse_timestamp
from natsd.spark.errors import JetStreamApiError, NoResponders
from natsd.spark.wire.client import NatsClient, decode_answer

NO_MESSAGE: Final = 10037
NO_STREAM: Final = 10059
NAME_IN_USE: Final = 10058
WRONG_LAST_SEQUENCE: Final = (10071, 10164)
PLAIN_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+")


def token(text: str) -> str:
    """Return the text as one token of a key; different texts give different tokens."""
    if PLAIN_TOKEN.fullmatch(text):
        return text
    return "=" + base64.urlsafe_b64encode(text.encode()).decode()


@dataclass(frozen=True)
class BucketEntry:
    """The value of a key; `written_ns` is ns since the epoch by the server's clock."""

    value: dict[str, Any]
    revision: int
    written_ns: int


class StateBucket:
    """A bucket of JSON objects, whose keys are subject tokens. Methods raise ClientError."""

    def __init__(self, client: NatsClient, name: str) -> None:
        self.client = client
        self.name = name
        self.stream = f"KV_{name}"
        self.prefix = f"$KV.{name}."
        own = client.options.api
        self._put_prefix = self.prefix if own == "$JS.API" else f"{own}.{self.prefix}"

    def create(self, key: str, value: dict[str, Any]) -> int | None:
        """Create the key and return its revision; None: the key exists already."""
        try:
            return self._put(key, value, 0)
        except NoResponders:
            self._create_bucket()
        return self._put(key, value, 0)

    def update(self, key: str, value: dict[str, Any], revision: int) -> int | None:
        """Set the key if it has this revision, and return the new one; None: it has another."""
        return self._put(key, value, revision)

    def get(self, key: str) -> BucketEntry | None:
        """Return the key's entry; None: the key or the bucket does not exist."""
        try:
            answer = self.client.api(
                f"STREAM.MSG.GET.{self.stream}", {"last_by_subj": self.prefix + key}
            )
        except JetStreamApiError as error:
            if error.err_code in (NO_MESSAGE, NO_STREAM):
                return None
            raise
        message = answer["message"]
        data = base64.b64decode(message.get("data") or "")
        if not data:
            return None
        return BucketEntry(json.loads(data), int(message["seq"]), parse_timestamp(message["time"]))

    def keys(self, prefix: str) -> list[str]:
        """Return the keys that begin with `prefix` and a dot, without that beginning."""
        start = f"{self.prefix}{prefix}."
        found: list[str] = []
        while True:
            body = {"subjects_filter": f"{start}>", "offset": len(found)}
            try:
                answer = self.client.api(f"STREAM.INFO.{self.stream}", body)
            except JetStreamApiError as error:
                if error.err_code == NO_STREAM:
                    return found
                raise
            subjects = answer["state"].get("subjects") or {}
            found.extend(subject.removeprefix(start) for subject in subjects)
            if not subjects or len(found) >= int(answer.get("total") or 0):
                return found

    def purge(self, pattern: str) -> None:
        """Remove every key that matches `pattern`; none has to match."""
        try:
            self.client.api(f"STREAM.PURGE.{self.stream}", {"filter": self.prefix + pattern})
        except JetStreamApiError as error:
            if error.err_code != NO_STREAM:
                raise

    def now_ns(self) -> int | None:
        """Return the server's time in ns since the epoch; None: the server does not report it."""
        answer = self.client.api(f"STREAM.INFO.{self.stream}")
        return parse_timestamp(answer["ts"]) if answer.get("ts") else None

    def _put(self, key: str, value: dict[str, Any], expected: int) -> int | None:
        headers = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: %d\r\n\r\n" % expected
        data = json.dumps(value, separators=(",", ":")).encode()
        answer = self.client.request(self._put_prefix + key, data, headers)
        try:
            return int(decode_answer(answer.data, f'bucket "{self.name}"')["seq"])
        except JetStreamApiError as error:
            if error.err_code in WRONG_LAST_SEQUENCE:
                return None
            raise

    def _create_bucket(self) -> None:
        config = {
            "name": self.stream,
            "description": "what Spark writers have begun and what is done",
            "subjects": [self.prefix + ">"],
            "max_msgs_per_subject": 1,
            "discard": "new",
            "deny_delete": True,
            "allow_rollup_hdrs": True,
            "allow_direct": True,
            "storage": "file",
            "num_replicas": 1,
        }
        try:
            self.client.api(f"STREAM.CREATE.{self.stream}", config)
        except JetStreamApiError as error:
            if error.err_code != NAME_IN_USE:
                raise
