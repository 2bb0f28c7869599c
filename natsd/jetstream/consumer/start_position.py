"""The first message that a consumer may deliver, when it begins, continues or is reset.

- Only visible messages count: those that are not durable yet come after the start.
- `last_per_subject` is a list of messages; after them come all messages behind `resume`, the last
  message that was visible when the list was made.
- A reset goes back to the ack floor, or to any sequence that the deliver policy allows.
- A start beyond the end becomes the next message to come, unless a sequence was given: then the
  stream may have to grow up to it. A start before the first message becomes the first message.

Source: nats-server's `selectStartingSeqNo` and `resetStartingSeq`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from natsd.jetstream.consumer.config import filters_of
from natsd.jetstream.errors import ApiError, ErrorId, api_error
from natsd.jetstream.models.consumer import ConsumerConfig, DeliverPolicy
from natsd.store.log.message_log import LastMatch, MessageLog
from natsd.store.log_store import LogStore


@dataclass(frozen=True, slots=True)
class StartPosition:
    """A start position: `sequence` is the first message to deliver; see above for the rest."""

    sequence: int
    last_per_subject: tuple[int, ...] | None = None
    resume: int = 0


async def find_start(
    config: ConsumerConfig,
    store: LogStore,
    log: MessageLog,
    visible: int,
    *,
    max_msgs_per_subject: int = -1,
) -> StartPosition:
    """Return the start position in a stream whose messages up to `visible` may be shown."""
    if config.deliver_policy is DeliverPolicy.LAST_PER_SUBJECT and max_msgs_per_subject != 1:
        return await find_last_per_subject(filters_of(config), store, log, visible)
    wanted = await _wanted(config, store, log, visible)
    return StartPosition(_within(wanted, config, log, visible))


async def find_last_per_subject(
    filters: Sequence[str], store: LogStore, log: MessageLog, visible: int, *, behind: int = 0
) -> StartPosition:
    """Return a start at the last message of each subject, of those behind `behind`.

    Without any, the start is the last visible message, as on nats-server, though the consumer does
    not deliver it.
    """
    found = await store.multi_last(filters, visible) if visible else []
    sequences = tuple(sequence for sequence in found if sequence > behind)
    first = sequences[0] if sequences else max(visible, behind + 1, log.first_sequence, 1)
    return StartPosition(first, sequences, visible)


async def find_continued(
    filters: Sequence[str],
    store: LogStore,
    log: MessageLog,
    visible: int,
    *,
    delivered: int,
    resume: int,
) -> StartPosition:
    """Return the start behind the last delivered message.

    If not all of the last messages of the subjects were delivered, it is among these.
    """
    if delivered >= min(resume, visible):
        return StartPosition(delivered + 1)
    return await find_last_per_subject(filters, store, log, resume, behind=delivered)


async def reset_sequence(
    config: ConsumerConfig, wanted: int, ack_floor: int, store: LogStore
) -> int:
    """Return where a reset begins; `wanted` 0: behind the ack floor. Raises ApiError 10204."""
    if wanted == 0:
        return ack_floor + 1
    match config.deliver_policy:
        case DeliverPolicy.ALL:
            return wanted
        case DeliverPolicy.BY_START_SEQUENCE:
            if wanted < config.opt_start_seq:
                raise _invalid_reset("below start seq")
        case DeliverPolicy.BY_START_TIME:
            if wanted < await store.sequence_at(config.opt_start_time or 0):
                raise _invalid_reset("below start time")
        case _:
            raise _invalid_reset("not allowed")
    return wanted


def _invalid_reset(why: str) -> ApiError:
    return api_error(ErrorId.JSConsumerInvalidResetErr, err=why)


async def _wanted(config: ConsumerConfig, store: LogStore, log: MessageLog, visible: int) -> int:
    match config.deliver_policy:
        case DeliverPolicy.LAST:
            return await _last(filters_of(config), store, log, visible)
        case DeliverPolicy.NEW:
            return visible + 1
        case DeliverPolicy.BY_START_SEQUENCE:
            return config.opt_start_seq
        case DeliverPolicy.BY_START_TIME:
            return await store.sequence_at(config.opt_start_time or 0)
        case _:
            return log.first_sequence


async def _last(filters: Sequence[str], store: LogStore, log: MessageLog, visible: int) -> int:
    """Return the last matching sequence; 0: there is none."""
    if not filters:
        return visible
    async with store.filtering(filters) as wanted:
        operation = LastMatch(log, wanted)
        await store.run(operation)
    if operation.result <= visible:
        return operation.result
    found = await store.multi_last(filters, visible) if visible else []
    return found[-1] if found else 0


def _within(wanted: int, config: ConsumerConfig, log: MessageLog, visible: int) -> int:
    is_asked_for = config.opt_start_seq > 0 and not config.direct
    if wanted > visible and not is_asked_for:
        return visible + 1
    return max(wanted, log.first_sequence, 1)
