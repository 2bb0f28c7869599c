"""The consumer settings that nats-server does not have: metadata that begins with `natsd.`.

    natsd.dead_letter_subject   the subject to which dead letters are copied   dead_letters.py
    natsd.key_token             the token of a subject that is the key
                                (keyed_pending_cursor.pyx)

Clients pass metadata on unchanged, so these settings work with any client. Other keys that begin
with `natsd.` are refused: a misspelled one would have no effect. All other metadata belongs to the
client.
"""

from typing import Final

from natsd.core.routing import is_literal, is_valid
from natsd.jetstream.errors import ApiError, ErrorId, api_error
from natsd.jetstream.models.consumer import (
    AckPolicy,
    ConsumerConfig,
    PriorityPolicy,
    ReplayPolicy,
)

DEAD_LETTER_SUBJECT: Final = "natsd.dead_letter_subject"
KEY_TOKEN: Final = "natsd.key_token"

_PREFIX: Final = "natsd."
_KEYS: Final = (DEAD_LETTER_SUBJECT, KEY_TOKEN)
KEY_TOKEN_MAX: Final = 99


def dead_letter_subject(config: ConsumerConfig) -> str:
    """Return the subject to which dead letters are copied; empty: they are not."""
    return config.metadata.get(DEAD_LETTER_SUBJECT, "")


def key_token(config: ConsumerConfig) -> int:
    """Return which token is a message's key, counted from 1; 0: none.

    The configuration must have been checked.
    """
    return int(config.metadata.get(KEY_TOKEN, "0"))


def refusal(text: str) -> ApiError:
    """Return the error for such a setting."""
    return api_error(ErrorId.JSConsumerInvalidPolicyErrF, err=f"consumer {text}")


def check_settings(config: ConsumerConfig) -> None:
    """Check the settings. Raises ApiError 10094.

    Whether dead letters would arrive is checked in dead_letter_target.py.
    """
    for key in config.metadata:
        if key.startswith(_PREFIX) and key not in _KEYS:
            raise refusal(f"metadata has an unknown setting '{key}'")
    if DEAD_LETTER_SUBJECT in config.metadata:
        _check_dead_letters(config)
    if KEY_TOKEN in config.metadata:
        _check_key(config)


def _check_dead_letters(config: ConsumerConfig) -> None:
    subject = config.metadata[DEAD_LETTER_SUBJECT]
    if not (is_valid(subject) and is_literal(subject)):
        raise refusal(f"dead letter subject '{subject}' is not a subject without wildcards")
    if config.ack_policy is not AckPolicy.EXPLICIT:
        raise refusal("with dead letters needs ack policy explicit")


def _check_key(config: ConsumerConfig) -> None:
    text = config.metadata[KEY_TOKEN]
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(KEY_TOKEN_MAX))
    if not is_number or text.startswith("0"):
        raise refusal(f"key token '{text}' is not a number from 1 to {KEY_TOKEN_MAX}")
    if config.ack_policy is not AckPolicy.EXPLICIT:
        raise refusal("with a key token needs ack policy explicit")
    if config.replay_policy is ReplayPolicy.ORIGINAL:
        raise refusal("with a key token can not replay as it was published")
    if config.priority_policy is PriorityPolicy.PINNED_CLIENT:
        raise refusal("with a key token can not be pinned to one client")
