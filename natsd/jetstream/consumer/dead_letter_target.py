"""Where a consumer's dead letters would go: whether they arrive, and never come back to it.

    consumer ─▶ subject ─▶ the stream that captures it ─▶ consumers there ─▶ their dead letters ─▶ …

Promise
- A dead letter subject is captured by a stream of this account that acknowledges what it stores.
- No consumer receives its own dead letters, not over any number of further streams and consumers
  with dead letters of their own. What mirrors, sources and clients copy is not looked at, nor what
  a stream is changed into afterwards.
"""

from typing import TYPE_CHECKING

from natsd.core.subject import matches
from natsd.core.subject_transform import SubjectTransform
from natsd.jetstream.consumer.config import filters_of
from natsd.jetstream.consumer.metadata import dead_letter_subject, refusal
from natsd.jetstream.models.consumer import ConsumerConfig

if TYPE_CHECKING:
    from natsd.jetstream.account import JetStreamAccount
    from natsd.jetstream.stream.stream import Stream


def check_target(config: ConsumerConfig, stream: "Stream") -> None:
    """Raises ApiError 10094 for a consumer, new or changed, of that stream."""
    subject = dead_letter_subject(config)
    if not subject:
        return
    target = _capturing(stream.account, subject)
    if target is None:
        raise refusal(f"dead letter subject '{subject}' is not captured by a stream")
    if target.config.no_ack or target.config.sealed:
        why = "acknowledges nothing" if target.config.no_ack else "is sealed"
        raise refusal(f"dead letter subject '{subject}': stream '{target.name}' {why}")
    if _comes_back(subject, config, stream):
        raise refusal(f"dead letter subject '{subject}' leads back to the consumer")


def _capturing(account: "JetStreamAccount", subject: str) -> "Stream | None":
    """No two streams of an account capture the same subject."""
    for stream in account.streams_with(subject):
        if any(matches(subject, pattern) for pattern in stream.config.subjects):
            return stream
    return None


def _comes_back(subject: str, config: ConsumerConfig, stream: "Stream") -> bool:
    """Whether the consumer would be delivered what is published there, then or later."""
    name = config.durable_name or config.name
    to_follow, followed = [subject], set[str]()
    while to_follow:
        subject = to_follow.pop()
        target = None if subject in followed else _capturing(stream.account, subject)
        followed.add(subject)
        if target is None:
            continue
        stored = _stored_as(subject, target)
        if target is stream and _wants(config, stored):
            return True
        to_follow += [
            dead_letter_subject(other.config)
            for other in target.consumers.values()
            if not (target is stream and other.name == name)
            and dead_letter_subject(other.config)
            and _wants(other.config, stored)
        ]
    return False


def _stored_as(subject: str, stream: "Stream") -> str:
    transform = stream.config.subject_transform
    if transform is None or not transform.dest:
        return subject
    return SubjectTransform(transform.src, transform.dest).map(subject) or subject


def _wants(config: ConsumerConfig, subject: str) -> bool:
    filters = filters_of(config)
    return not filters or any(matches(subject, pattern) for pattern in filters)
