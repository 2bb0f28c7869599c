"""What a publisher is told, as JSON: the answers that are not put together in compiled code.

    {"error":{"code":400,"err_code":10060,"description":"expected …"},"stream":"S","seq":0}
    {"stream":"S","seq":  or  {"stream":"S","domain":"D","seq":      and the number and `}` follow

Source: nats-server 2.14 reference 6.7, with its field order and escapes.
"""

from __future__ import annotations

import json
from typing import Final

from natsd.jetstream.errors import ApiError, ErrorId, api_error
from natsd.store.errors import LimitExceeded, StoreError, StoreFull

BUSY_HEADERS: Final = b"NATS/1.0 429 Too Many Requests\r\n\r\n"

# As the reference server's encoder writes them, so that a page may hold the text.
_ESCAPED: Final = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def _quoted(text: str) -> str:
    """A JSON string. Bytes that are no UTF-8 become U+FFFD."""
    clean = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return json.dumps(clean, ensure_ascii=False).translate(_ESCAPED)


def refusal(stream: str, error: ApiError) -> bytes:
    """The answer to a publish that was refused."""
    return (
        f'{{"error":{{"code":{error.code},"err_code":{error.err_code},'
        f'"description":{_quoted(error.description)}}},"stream":{_quoted(stream)},"seq":0}}'
    ).encode()


def ack_prefix(stream: str, domain: str) -> bytes:
    """How every PubAck of a stream begins, up to its sequence."""
    within = f'"domain":{_quoted(domain)},' if domain else ""
    return f'{{"stream":{_quoted(stream)},{within}"seq":'.encode()


def batch_tail(batch_id: bytes, count: int) -> bytes:
    """How the PubAck of a batch ends, behind its sequence: all but the `}`."""
    text = _quoted(batch_id.decode("utf-8", "surrogateescape"))
    return f',"batch":{text},"count":{count}'.encode()


def duplicate_tail(batch_id: bytes, count: int) -> bytes:
    """`batch_tail`, where all of the batch is a message that was there already."""
    return b',"duplicate": true' + batch_tail(batch_id, count)


def flow_error(refused: bytes, sequence: int) -> bytes:
    """A refusal as it is told within a fast batch."""
    error = refused[: refused.rindex(b',"stream":')].removeprefix(b"{")
    return b'{"type":"err","seq":%d,%b}' % (sequence, error)


def flow_gap(expected: int, sequence: int) -> bytes:
    """What a fast batch is told when messages from `expected` up to `sequence` did not come."""
    return b'{"type":"gap","last_seq":%d,"seq":%d}' % (expected, sequence)


def store_error(error: StoreError) -> ApiError:
    """What a publisher is told when the store did not take, or did not keep, the message."""
    if isinstance(error, StoreFull):
        return api_error(ErrorId.JSInsufficientResourcesErr)
    text = error.text if isinstance(error, LimitExceeded) else str(error)
    return api_error(ErrorId.JSStreamStoreFailedF, err=text)
