"""The rules for the mirror and the sources in a stream's configuration.

- A mirror has the same messages as its origin, with the same sequences: it may not store any
  others.
- Two sources that would bring the same messages twice are refused, and so is a stream that would be
  filled from itself, through however many others.
- Rules about the origin stream are checked if that stream exists in the account; it may be created
  later. Nothing is known of an external stream.

Source: nats-server's `checkStreamCfg`, and nats-server 2.14, observed.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from natsd.core.quoting import quoted
from natsd.core.routing import collide, is_literal, is_valid, is_valid_publish
from natsd.core.steps import AT_ONCE, Steps, slices
from natsd.core.subject_mapping import InvalidMapping, check_mapping
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.models.stream import (
    ExternalStream,
    StreamConfig,
    StreamSource,
    SubjectTransformConfig,
)
from natsd.jetstream.names import API_PREFIX, is_valid_asset_name
from natsd.jetstream.overlaps import Tell, collisions, coverings

Origins = Callable[[str], StreamConfig | None]
"""Function that returns the configuration of the account's stream of a name, or None."""

MIRROR_FORBIDS: Final = (
    ("first_seq", ErrorId.JSMirrorWithFirstSeqErr),
    ("subjects", ErrorId.JSMirrorWithSubjectsErr),
    ("sources", ErrorId.JSMirrorWithSourcesErr),
    ("allow_msg_counter", ErrorId.JSMirrorWithCountersErr),
    ("allow_atomic", ErrorId.JSMirrorWithAtomicPublishErr),
    ("allow_batched", ErrorId.JSMirrorWithBatchPublishErr),
    ("allow_msg_schedules", ErrorId.JSMirrorWithMsgSchedulesErr),
)
"""Settings that would store messages which the origin does not have."""


class _Errors(NamedTuple):
    """The errors of rules that mirrors and sources share."""

    name: ErrorId
    consumer: ErrorId
    filter_and_transforms: ErrorId
    transform_source: ErrorId
    transform: ErrorId
    overlap: ErrorId
    message_size: ErrorId


_OF_MIRROR: Final = _Errors(
    ErrorId.JSMirrorInvalidStreamName,
    ErrorId.JSMirrorDurableConsumerCfgInvalid,
    ErrorId.JSMirrorMultipleFiltersNotAllowed,
    ErrorId.JSMirrorInvalidSubjectFilter,
    ErrorId.JSMirrorInvalidTransformDestination,
    ErrorId.JSMirrorOverlappingSubjectFilters,
    ErrorId.JSMirrorMaxMessageSizeTooBigErr,
)
_OF_SOURCE: Final = _Errors(
    ErrorId.JSSourceInvalidStreamName,
    ErrorId.JSSourceDurableConsumerCfgInvalid,
    ErrorId.JSSourceMultipleFiltersNotAllowed,
    ErrorId.JSSourceInvalidSubjectFilter,
    ErrorId.JSSourceInvalidTransformDestination,
    ErrorId.JSSourceOverlappingSubjectFilters,
    ErrorId.JSSourceMaxMessageSizeTooBigErr,
)


def no_streams(_name: str) -> StreamConfig | None:
    """Return None for every name, as an account without streams does."""
    return None


def check_sourcing(
    config: StreamConfig, origins: Origins, *, pedantic: bool = False
) -> Steps[StreamConfig]:
    """Return the configuration; a mirror gets its origin's `mirror_direct`. Raises ApiError."""
    if config.mirror is None and not config.sources:
        return config
    if config.mirror is not None:
        config = yield from _check_mirror(config, config.mirror, origins, pedantic=pedantic)
    yield from _check_sources(config, origins)
    yield from _check_externals(config, origins)
    yield from _check_cycles(config, origins)
    return config


def check_filters(config: StreamConfig, failure: ErrorId) -> None:
    """Check that the filters of mirror and sources are valid subjects. Raises ApiError."""
    mirror = config.mirror
    if mirror is not None and mirror.filter_subject and not is_valid(mirror.filter_subject):
        text = f"subject filter '{mirror.filter_subject}' for the mirror invalid subject"
        raise api_error(failure, err=text)
    for source in config.sources:
        if source.filter_subject and not is_valid(source.filter_subject):
            text = f"subject filter '{source.filter_subject}' for the source: invalid subject"
            raise api_error(failure, err=text)


def check_mirror_change(old: StreamConfig, new: StreamConfig) -> None:
    """Check that a mirror keeps its origin or stops being a mirror for good. Raises ApiError."""
    if new.mirror is not None and new.mirror != old.mirror:
        raise api_error(ErrorId.JSStreamMirrorNotUpdatableErr)


def identity(source: StreamSource) -> tuple[str, ...]:
    """Return what tells a source from the other sources of a stream: origin, filters, mappings.

    Start and deliver subjects are not part of it: a source that differs in them is the same one,
    and goes on where it stopped.
    """
    external = source.external.api if source.external is not None else ""
    consumer = source.consumer.name if source.consumer is not None else ""
    filters = source.subject_transforms or [SubjectTransformConfig(src=source.filter_subject)]
    mapped = [part or ">" for each in filters for part in (each.src, each.dest)]
    return source.name, external, consumer, *mapped


def _check_mirror(
    config: StreamConfig, mirror: StreamSource, origins: Origins, *, pedantic: bool
) -> Steps[StreamConfig]:
    for field, error_id in MIRROR_FORBIDS:
        if getattr(config, field):
            raise api_error(error_id)
    _check_consumer(mirror, _OF_MIRROR)
    if mirror.filter_subject and mirror.subject_transforms:
        raise api_error(_OF_MIRROR.filter_and_transforms)
    if config.subject_delete_marker_ttl > 0:
        text = "subject delete markers forbidden on mirrors"
        raise api_error(ErrorId.JSStreamInvalidConfigF, err=text)
    yield from _check_transforms(mirror, _OF_MIRROR, collisions)
    if not is_valid_asset_name(mirror.name):
        raise api_error(_OF_MIRROR.name)
    origin = _origin(mirror, origins)
    if origin is None:
        return config
    _check_message_size(config, origin, _OF_MIRROR)
    if pedantic and config.mirror_direct != origin.allow_direct:
        text = "origin stream has direct get set, mirror has it disabled"
        raise api_error(ErrorId.JSPedanticErrF, err=text)
    return config.model_copy(update={"mirror_direct": origin.allow_direct})


def _check_sources(config: StreamConfig, origins: Origins) -> Steps[None]:
    if config.sources and config.allow_msg_schedules:
        raise api_error(ErrorId.JSSourceWithMsgSchedulesErr)
    known, consumers = set[tuple[str, ...]](), set[tuple[str, ...]]()
    for source in config.sources:
        if not is_valid_asset_name(source.name):
            raise api_error(_OF_SOURCE.name)
        its_identity = identity(source)
        if its_identity in known:
            raise api_error(ErrorId.JSSourceDuplicateDetected)
        known.add(its_identity)
        if source.filter_subject and source.subject_transforms:
            raise api_error(_OF_SOURCE.filter_and_transforms)
        yield from _check_transforms(source, _OF_SOURCE, coverings)
        _check_consumer(source, _OF_SOURCE)
        if source.consumer is not None:
            its_consumer = its_identity[:3]
            if its_consumer in consumers:
                raise api_error(ErrorId.JSSourceDurableConsumerDuplicateDetected)
            consumers.add(its_consumer)
        origin = _origin(source, origins)
        if origin is not None:
            _check_message_size(config, origin, _OF_SOURCE)
        yield


def _check_consumer(source: StreamSource, errors: _Errors) -> None:
    """Check that nothing else is configured for a source that reads with an existing consumer.

    That consumer already says where to begin and which messages to send.
    """
    consumer = source.consumer
    if consumer is None:
        return
    deliver = consumer.deliver_subject
    can_deliver = is_literal(deliver) and is_valid(deliver)
    has_start = source.opt_start_seq > 0 or source.opt_start_time is not None
    says_more = has_start or source.filter_subject
    if not is_valid_asset_name(consumer.name) or not can_deliver or says_more:
        raise api_error(errors.consumer)


def _check_transforms(
    source: StreamSource,
    errors: _Errors,
    overlaps: Callable[[Sequence[str], Tell], Steps[None]],
) -> Steps[None]:
    transforms = source.subject_transforms
    for place, each in enumerate(transforms):
        if place % AT_ONCE == AT_ONCE - 1:
            yield
        if each.src and not is_valid(each.src):
            raise api_error(errors.transform_source, err=f"invalid subject {each.src}")
        if not each.dest:  # without a destination the subjects stay as they are
            continue
        try:
            check_mapping(each.src, each.dest)
        except InvalidMapping as error:
            raise api_error(errors.transform, err=error) from None
    patterns = [each.src or ">" for each in transforms]

    def tell(_place: int, other: int | None) -> None:
        if other is not None:
            raise api_error(errors.overlap)

    yield from overlaps(patterns, tell)


def _origin(source: StreamSource, origins: Origins) -> StreamConfig | None:
    """Return the origin's configuration if it is known; an external stream is another one."""
    return None if source.external is not None else origins(source.name)


def _check_message_size(config: StreamConfig, origin: StreamConfig, errors: _Errors) -> None:
    if 0 < config.max_msg_size < origin.max_msg_size:
        raise api_error(errors.message_size)


def _all_sources(config: StreamConfig) -> list[StreamSource]:
    return config.sources if config.mirror is None else [config.mirror, *config.sources]


def _check_externals(config: StreamConfig, origins: Origins) -> Steps[None]:
    """Check that prefixes are literal, and that deliveries and API requests do not collide.

    A delivery prefix must not lead into captured subjects, an API prefix not into this account's
    API.
    """
    sources = _all_sources(config)
    externals = [each.external for each in sources if each.external is not None]
    if not externals:
        return
    known = [origins(each.name) for each in sources if each.external is None]
    subjects = [subject for origin in known if origin is not None for subject in origin.subjects]
    # A prefix makes the subject longer, so only a subject that ends with `>` can match it.
    endless = [*dict.fromkeys(subject for subject in subjects if subject.endswith(">"))]
    for prefix in dict.fromkeys(external.deliver for external in externals):
        yield from _check_delivery_prefix(prefix, endless)
    for external in externals:
        _check_api_prefix(external)


def _check_delivery_prefix(prefix: str, subjects: Sequence[str]) -> Steps[None]:
    if not prefix:
        return
    if not is_valid_publish(prefix):
        raise api_error(ErrorId.JSStreamInvalidExternalDeliverySubjErrF, prefix=prefix)
    for place, subject in enumerate(subjects):
        if collide(subject, f"{prefix}.{subject}"):
            raise api_error(
                ErrorId.JSStreamExternalDelPrefixOverlapsErrF, prefix=prefix, subject=subject
            )
        if place % AT_ONCE == AT_ONCE - 1:
            yield


def _check_api_prefix(external: ExternalStream) -> None:
    prefix = external.api
    if not prefix:
        return
    if not is_valid_publish(prefix):
        text = f"stream external api prefix {quoted(prefix)} must be a valid subject"
        raise api_error(ErrorId.JSStreamInvalidConfigF, err=f"{text} without wildcards")
    if collide(prefix, API_PREFIX):
        raise api_error(ErrorId.JSStreamExternalApiOverlapErrF, prefix=prefix, subject=API_PREFIX)


def _check_cycles(config: StreamConfig, origins: Origins) -> Steps[None]:
    """Check that no message of the stream can come back to it.

    Streams that are met twice on the way are no cycle: nats-server takes some of them for one.
    """
    seen, waiting = {config.name}, deque([config])
    while waiting:
        each = waiting.popleft()
        for source in _all_sources(each):
            if source.external is not None:
                continue
            if source.name == config.name:
                if source is each.mirror or (
                    yield from _overlaps(each.subjects, source.filter_subject)
                ):
                    raise api_error(ErrorId.JSStreamInvalidConfigF, err="detected cycle")
            elif source.name not in seen:
                seen.add(source.name)
                origin = origins(source.name)
                waiting.extend([] if origin is None else [origin])
        yield


def _overlaps(subjects: Sequence[str], pattern: str) -> Steps[bool]:
    if not pattern:
        return True
    for some in slices(subjects):
        if any(collide(subject, pattern) for subject in some):
            return True
        yield
    return False
