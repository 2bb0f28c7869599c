"""The consumer settings that nats-server does not have: metadata that begins with `natsd.`.

    natsd.dead_letter_subject   the subject to which dead letters are copied   dead_letters.py
    natsd.key_token             the token of a subject that is the key
                                (keyed_pending_cursor.pyx)
    natsd.read_replica          the server whose read replica of the stream serves the consumer;
                                `any`: the API chooses one, and its name is kept
                                (stream/own_consumers.py)
    natsd.read_replica_moves    `true`, which `any` implies: another server's read replica serves
                                the consumer if that server has none any more

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
from natsd.jetstream.models.stream import Retention, StreamConfig

DEAD_LETTER_SUBJECT: Final = "natsd.dead_letter_subject"
KEY_TOKEN: Final = "natsd.key_token"
READ_REPLICA: Final = "natsd.read_replica"
READ_REPLICA_MOVES: Final = "natsd.read_replica_moves"
ANY: Final = "any"
TRUE: Final = "true"

_PREFIX: Final = "natsd."
_KEYS: Final = (DEAD_LETTER_SUBJECT, KEY_TOKEN, READ_REPLICA, READ_REPLICA_MOVES)
KEY_TOKEN_MAX: Final = 99


def dead_letter_subject(config: ConsumerConfig) -> str:
    """Return the subject to which dead letters are copied; empty: they are not."""
    return config.metadata.get(DEAD_LETTER_SUBJECT, "")


def key_token(config: ConsumerConfig) -> int:
    """Return which token is a message's key, counted from 1; 0: none.

    The configuration must have been checked.
    """
    return int(config.metadata.get(KEY_TOKEN, "0"))


def read_replica(config: ConsumerConfig) -> str:
    """Return the server whose read replica serves the consumer; empty: its stream's leader does."""
    return config.metadata.get(READ_REPLICA, "")


def may_move(config: ConsumerConfig) -> bool:
    """Return whether another server may serve the consumer if that one has no read replica."""
    return read_replica(config) == ANY or READ_REPLICA_MOVES in config.metadata


def on_read_replica(config: ConsumerConfig, server: str) -> ConsumerConfig:
    """Return the configuration with the server whose read replica serves the consumer."""
    moves = {READ_REPLICA_MOVES: TRUE} if read_replica(config) == ANY else {}
    metadata = config.metadata | {READ_REPLICA: server} | moves
    return config.model_copy(update={"metadata": metadata})


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
    if READ_REPLICA in config.metadata:
        _check_read_replica(config)
    if READ_REPLICA_MOVES in config.metadata:
        _check_moves(config)


def check_read_replica(config: ConsumerConfig, stream: StreamConfig) -> None:
    """Check that a read replica may serve a consumer of the stream. Raises ApiError 10094.

    What is acknowledged there must remove nothing from the stream.
    """
    if read_replica(config) and stream.retention is not Retention.LIMITS:
        raise refusal("on a read replica needs a stream with limits retention")


def _check_dead_letters(config: ConsumerConfig) -> None:
    subject = config.metadata[DEAD_LETTER_SUBJECT]
    if not (is_valid(subject) and is_literal(subject)):
        raise refusal(f"dead letter subject '{subject}' is not a subject without wildcards")
    if config.ack_policy is not AckPolicy.EXPLICIT:
        raise refusal("with dead letters needs ack policy explicit")


def _check_read_replica(config: ConsumerConfig) -> None:
    if not read_replica(config):
        raise refusal(f"read replica '' is not the name of a server or '{ANY}'")
    if config.num_replicas not in (0, 1):
        raise refusal(f"on a read replica has one replica, not {config.num_replicas}")


def _check_moves(config: ConsumerConfig) -> None:
    text = config.metadata[READ_REPLICA_MOVES]
    if text != TRUE:
        raise refusal(
            f"on a read replica moves if '{READ_REPLICA_MOVES}' is '{TRUE}', not '{text}'"
        )
    if READ_REPLICA not in config.metadata:
        raise refusal(f"with '{READ_REPLICA_MOVES}' needs '{READ_REPLICA}'")


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
