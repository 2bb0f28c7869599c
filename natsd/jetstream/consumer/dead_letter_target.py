"""The target of a consumer's dead letters: that they arrive, and never come back to the consumer.

    consumer ─▶ subject ─▶ the stream that captures it ─▶ consumers there ─▶ their dead letters ─▶ …

Promise
- A dead letter subject is captured by a stream of this account that acknowledges what it stores.
- No consumer receives its own dead letters, not over any number of further streams and consumers
  with dead letters of their own. Copies by mirrors, sources and clients are not considered, nor
  later changes of a stream.
- The cost depends on the number of consumers that want a dead letter, not on that of their filters.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from natsd.core.routing import SubjectTransform
from natsd.core.steps import Steps, slices
from natsd.jetstream.claims import SubjectClaims
from natsd.jetstream.consumer.config import filters_of
from natsd.jetstream.consumer.delivery import ConsumerEngine
from natsd.jetstream.consumer.metadata import dead_letter_subject, refusal
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.stream.state import Reader, StreamReaders
from natsd.store.log.subjects import Filter

if TYPE_CHECKING:
    from natsd.jetstream.consumer.consumer import Consumer


class CapturingStream(Protocol):
    """A stream that may capture dead letters, with its consumers."""

    config: StreamConfig
    readers: StreamReaders

    @property
    def name(self) -> str:
        """The stream's name in its account."""

    @property
    def consumers(self) -> "Mapping[str, Consumer]":
        """The consumers, by name."""


class CapturingAccount(Protocol):
    """The streams of an account, found by their subjects."""

    claims: SubjectClaims

    def streams_with(self, subject: str) -> Sequence[CapturingStream]:
        """Return the streams with a subject that overlaps `subject`."""


def check_target(
    config: ConsumerConfig, stream: CapturingStream, account: CapturingAccount
) -> Steps[None]:
    """Check the dead letter subject of a consumer, in steps. Raises ApiError 10094."""
    subject = dead_letter_subject(config)
    if not subject:
        return
    target = _capturing(account, subject)
    if target is None:
        raise refusal(f"dead letter subject '{subject}' is not captured by a stream")
    if target.config.no_ack or target.config.sealed:
        why = "acknowledges nothing" if target.config.no_ack else "is sealed"
        raise refusal(f"dead letter subject '{subject}': stream '{target.name}' {why}")
    if (yield from _comes_back(subject, config, stream, account)):
        raise refusal(f"dead letter subject '{subject}' leads back to the consumer")


def _capturing(account: CapturingAccount, subject: str) -> CapturingStream | None:
    """Return the stream that captures a subject, or None; at most one stream of an account does."""
    for stream in account.streams_with(subject):
        if account.claims.is_owner(stream.name, subject):
            return stream
    return None


def _comes_back(
    subject: str, config: ConsumerConfig, stream: CapturingStream, account: CapturingAccount
) -> Steps[bool]:
    """Tell whether a message published there would reach the consumer, at once or over others."""
    name = config.durable_name or config.name
    wanted = yield from Filter.in_steps(filters_of(config))
    to_follow, known = [subject], {subject}
    while to_follow:
        subject = to_follow.pop()
        target = _capturing(account, subject)
        yield
        if target is None:
            continue
        stored = _stored_as(subject, target)
        if target is stream and wanted.is_match(stored):
            return True
        for some in slices(target.readers.readers_of(stored)):
            for other in _consumers(target, some):
                letters = dead_letter_subject(other.config)
                if not letters or letters in known or (target is stream and other.name == name):
                    continue
                known.add(letters)
                to_follow.append(letters)
            yield
    return False


def _stored_as(subject: str, stream: CapturingStream) -> str:
    transform = stream.config.subject_transform
    if transform is None or not transform.dest:
        return subject
    return SubjectTransform(transform.src, transform.dest).map(subject) or subject


def _consumers(stream: CapturingStream, readers: Sequence[Reader]) -> "Iterator[Consumer]":
    """Return the consumers among the readers."""
    for reader in readers:
        if isinstance(reader, ConsumerEngine) and reader.name in stream.consumers:
            yield stream.consumers[reader.name]
