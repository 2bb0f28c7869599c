"""The reason why a stream did not store a message, as a message trace gives it.

It is mostly the text that the publisher gets, with the code behind it. The other texts are those of
nats-server, which tools that read traces know.

The texts were observed on nats-server 2.14; source of traces: ADR-41.
"""

import json
from typing import Final

from natsd.core.quoting import quoted
from natsd.jetstream.headers import header_value
from natsd.jetstream.stream.checks import number_of

_WRONG_SEQUENCE: Final = 10071
_WRONG_ID: Final = 10070
_STORE_FAILED: Final = 10077
_WORDS: Final = {
    10054: "maximum payload exceeded",
    10060: "expected stream does not match",
    10097: "maximum payload exceeded",
    10166: "message TTL disabled",
}
_WITHOUT_CODE: Final = (_STORE_FAILED, 10111)
_PLACED: Final = (10002, _STORE_FAILED, 10165)
"""Errors of messages whose headers the stream accepts; the trace names their stored subject."""


def trace_error(
    refused: bytes | None, headers: bytes, lacks_subject_sequence: bool
) -> tuple[str, bool]:
    """Return the text, empty if the message was taken, and whether the trace names its subject.

    `refused` is the publisher's answer; empty or None: not refused. The subject is the one in the
    stream.
    """
    if not refused:
        return "", True
    answer = json.loads(refused)
    if "duplicate" in answer:
        return "msgid is duplicate", False
    if "error" not in answer:  # a batch that is being sent
        return "", True
    code, description = answer["error"]["err_code"], answer["error"]["description"]
    return _words(code, description, headers, lacks_subject_sequence), code in _PLACED


def _words(code: int, description: str, headers: bytes, lacks_subject_sequence: bool) -> str:
    if code == _WRONG_SEQUENCE:
        kind, name = "", "Nats-Expected-Last-Sequence"
        if lacks_subject_sequence:
            kind, name = " by subject", "Nats-Expected-Last-Subject-Sequence"
        wanted = number_of(header_value(headers, name) or b"")
        return f"last sequence{kind} mismatch: {wanted} vs {description.rpartition(' ')[2]}"
    if code == _WRONG_ID:
        wanted_id = (header_value(headers, "Nats-Expected-Last-Msg-Id") or b"").decode(
            "utf-8", "replace"
        )
        last_id = description.partition(": ")[2]
        return f"last msgid mismatch: {quoted(wanted_id)} vs {quoted(last_id)}"
    if code in _WITHOUT_CODE:
        return description
    return _WORDS.get(code) or f"{description} ({code})"
