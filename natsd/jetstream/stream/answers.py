"""The JSON answers to publishers that compiled code does not assemble.

    {"error":{"code":400,"err_code":10060,"description":"expected …"},"stream":"S","seq":0}
    {"stream":"S","seq":  or  {"stream":"S","domain":"D","seq":      and the number and `}` follow

Field order and escapes are those of nats-server's `JSPubAckResponse`.
"""

from __future__ import annotations

import json
from typing import Final

from natsd.jetstream.commands.committer import NotCommitted
from natsd.jetstream.errors import ApiError, ErrorId, api_error
from natsd.store.errors import LimitExceeded, StoreError, StoreFull

BUSY_HEADERS: Final = b"NATS/1.0 429 Too Many Requests\r\n\r\n"

# Go's JSON encoder escapes these characters, so that HTML may embed the text.
_ESCAPED: Final = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def _quoted(text: str) -> str:
    """Return a JSON string; bytes that are not UTF-8 become U+FFFD."""
    clean = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return json.dumps(clean, ensure_ascii=False).translate(_ESCAPED)


def refusal(stream: str, error: ApiError) -> bytes:
    """Return the answer to a publish that was refused."""
    return (
        f'{{"error":{{"code":{error.code},"err_code":{error.err_code},'
        f'"description":{_quoted(error.description)}}},"stream":{_quoted(stream)},"seq":0}}'
    ).encode()


def ack_prefix(stream: str, domain: str) -> bytes:
    """Return the beginning of every PubAck of a stream, up to its sequence."""
    within = f'"domain":{_quoted(domain)},' if domain else ""
    return f'{{"stream":{_quoted(stream)},{within}"seq":'.encode()


class OwnMessageRefused(Exception):
    """A message that the server makes itself was refused by its stream.

    `answer` is the JSON text that a publisher would get.
    """

    def __init__(self, answer: bytes) -> None:
        super().__init__(answer.decode("utf-8", "replace"))
        self.answer = answer


def batch_tail(batch_id: bytes, count: int) -> bytes:
    """Return the end of a batch's PubAck, behind its sequence and without the `}`."""
    text = _quoted(batch_id.decode("utf-8", "surrogateescape"))
    return f',"batch":{text},"count":{count}'.encode()


def duplicate_tail(batch_id: bytes, count: int) -> bytes:
    """Return the end of a batch's PubAck whose only message is a duplicate, without the `}`."""
    return b',"duplicate": true' + batch_tail(batch_id, count)


def flow_error(refused: bytes, sequence: int) -> bytes:
    """Return a refusal in the form that a fast batch gets (`"type":"err"`)."""
    error = refused[: refused.rindex(b',"stream":')].removeprefix(b"{")
    return b'{"type":"err","seq":%d,%b}' % (sequence, error)


def flow_gap(expected: int, sequence: int) -> bytes:
    """Return what a fast batch is told of a gap: `expected` to `sequence` - 1 did not come."""
    return b'{"type":"gap","last_seq":%d,"seq":%d}' % (expected, sequence)


def store_error(error: StoreError) -> ApiError:
    """Return the error that a publisher gets when the store did not take or keep the message."""
    if isinstance(error, NotCommitted):
        return api_error(ErrorId.JSClusterNotAvailErr)
    if isinstance(error, StoreFull):
        return api_error(ErrorId.JSInsufficientResourcesErr)
    text = error.text if isinstance(error, LimitExceeded) else str(error)
    return api_error(ErrorId.JSStreamStoreFailedF, err=text)
