"""The rules for a stream's configuration, and the defaults that are filled in.

- `check_create` and `check_update` take the configuration that a client sent and return the one
  that is stored, or raise the ApiError that nats-server answers for the first broken rule. They run
  in steps, since there may be a hundred thousand subjects.
- In pedantic mode a default that would replace a client's value is an error: 10157.
- Questions about the rest of the account are not decided here: whether the subjects are taken, and
  whether there is room.

Source: nats-server's `checkStreamCfg` and `configUpdateCheck`, and nats-server 2.14, observed.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from natsd.core.durations import format_duration_ns
from natsd.core.quoting import quoted
from natsd.core.routing import collide, is_subset, is_valid
from natsd.core.steps import Steps, slices
from natsd.core.subject_mapping import InvalidMapping, check_mapping
from natsd.jetstream.consumer.metadata import read_replica
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.models.account import AccountLimits
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.stream import (
    DiscardPolicy,
    PersistMode,
    Placement,
    RePublish,
    Retention,
    Storage,
    StreamConfig,
)
from natsd.jetstream.names import (
    DESCRIPTION_BYTES_MAX,
    METADATA_BYTES_MAX,
    NAME_BYTES_MAX,
    SOURCES_MAX,
    TRANSFORMS_MAX,
    byte_length,
    is_valid_asset_name,
    metadata_length,
)
from natsd.jetstream.overlaps import collisions
from natsd.jetstream.stream.metadata import with_static_metadata
from natsd.jetstream.stream.settings_in_metadata import check_settings, read_replicas
from natsd.jetstream.stream.source_config import (
    Origins,
    check_filters,
    check_mirror_change,
    check_sourcing,
    no_streams,
)

REPLICAS_MAX: Final = 5
DUPLICATE_WINDOW_NS: Final = 120 * 1_000_000_000
SHORTEST_NS: Final = 100 * 1_000_000
"""Shortest maximum age or duplicate window that is allowed."""
_SECOND_NS: Final = 1_000_000_000

_UNLIMITED: Final = (
    "max_msgs",
    "max_msgs_per_subject",
    "max_bytes",
    "max_msg_size",
    "max_consumers",
)
_API_SPACES: Final = ("$JS.>", "$JSC.>", "$NRG.>")


@dataclass(frozen=True, slots=True)
class ConfigRules:
    """Limits of an account and its server (0: no limit), and the streams of the account."""

    limits: AccountLimits
    duplicate_window_ns_max: int = 0
    origins: Origins = no_streams
    is_clustered: bool = False  # streams may have several replicas


def check_create(
    config: StreamConfig, rules: ConfigRules, *, pedantic: bool = False
) -> Steps[StreamConfig]:
    """Return the configuration of a new stream as it is stored. Raises ApiError."""
    config = yield from check_config(with_static_metadata(config), rules, pedantic=pedantic)
    check_filters(config, ErrorId.JSStreamCreateErrF)
    _check_replicas(config, rules)
    return config


def check_update(
    old: StreamConfig,
    config: StreamConfig,
    rules: ConfigRules,
    consumers: Callable[[], Mapping[str, ConsumerConfig]],
    *,
    pedantic: bool = False,
) -> Steps[StreamConfig]:
    """Return the new configuration of a stream as it is stored. Raises ApiError.

    `consumers` returns the configurations of the stream's consumers, by name.
    """
    config = yield from check_config(config, rules, pedantic=pedantic)
    check_filters(config, ErrorId.JSStreamUpdateErrF)
    config = check_change(old, with_static_metadata(config))
    _check_replicas(config, rules)
    check_consumers(old, config, consumers())
    return config


def check_config(
    config: StreamConfig, rules: ConfigRules, *, pedantic: bool = False
) -> Steps[StreamConfig]:
    """Return the configuration with every default filled in. Raises ApiError."""
    _check_texts(config)
    filled: dict[str, Any] = _fill_limits(config, pedantic=pedantic)
    filled["duplicate_window"] = _duplicate_window(config, rules, pedantic=pedantic)
    config = config.model_copy(update=filled)
    _check_together(config)
    config = _with_markers(config, pedantic=pedantic)
    config = _with_schedules(config, pedantic=pedantic)
    _check_persistence(config)
    config = yield from check_sourcing(config, rules.origins, pedantic=pedantic)
    if not (config.subjects or config.mirror or config.sources):
        config = config.model_copy(update={"subjects": [config.name]})
    yield from _check_subjects(config)
    _check_max_bytes(config, rules.limits)
    _check_transform(config)
    config = yield from _check_republish(config, pedantic=pedantic)
    check_settings(config)
    return _check_placement(config)


def check_change(old: StreamConfig, new: StreamConfig) -> StreamConfig:
    """Return the changed configuration, or raise ApiError, in nats-server's order of rules."""
    change = "stream configuration update can not"
    workqueue = Retention.WORKQUEUE in (old.retention, new.retention)
    before_mirrors = (
        (new.name != old.name, "stream configuration name must match original"),
        (new.storage is not old.storage, f"{change} change storage type"),
        (
            new.retention is not old.retention and workqueue,
            f"{change} change retention policy to/from workqueue",
        ),
        (old.sealed and not new.sealed, f"{change} unseal a sealed stream"),
        (old.deny_delete and not new.deny_delete, f"{change} cancel deny message deletes"),
        (old.deny_purge and not new.deny_purge, f"{change} cancel deny purge"),
    )
    behind_mirrors = (
        (
            old.allow_msg_ttl and not new.allow_msg_ttl,
            "message TTL status can not be disabled",
        ),
        (
            old.allow_msg_counter != new.allow_msg_counter,
            f"{change} change message counter setting",
        ),
        (
            old.allow_msg_schedules and not new.allow_msg_schedules,
            "message schedules can not be disabled",
        ),
        (old.persist_mode is not new.persist_mode, f"{change} change persist mode"),
    )
    _refuse_first(before_mirrors)
    check_mirror_change(old, new)
    _refuse_first(behind_mirrors)
    return _sealed(new) if new.sealed else new


def _check_replicas(config: StreamConfig, rules: ConfigRules) -> None:
    if rules.is_clustered:
        return
    if config.num_replicas > 1:
        raise api_error(ErrorId.JSStreamReplicasNotSupportedErr)
    if read_replicas(config).number:
        _refuse("stream with read replicas needs a cluster")


def check_consumers(
    old: StreamConfig, new: StreamConfig, consumers: Mapping[str, ConsumerConfig]
) -> None:
    """Check that no consumer forbids the change, or exceeds new limits. Raises ApiError."""
    reading = [name for name, config in consumers.items() if read_replica(config)]
    if reading and new.retention is not Retention.LIMITS:
        text = f"retention must stay limits for consumers on read replicas: {', '.join(reading)}"
        raise api_error(ErrorId.JSStreamUpdateErrF, err=text)
    before, limits = old.consumer_limits, new.consumer_limits
    threshold, ack_pending = limits.inactive_threshold, limits.max_ack_pending
    if before.inactive_threshold == threshold and before.max_ack_pending == ack_pending:
        return
    beyond = [
        name
        for name, config in consumers.items()
        if 0 < threshold < config.inactive_threshold or 0 < ack_pending < config.max_ack_pending
    ]
    if beyond:
        text = f"change to limits violates consumers: {', '.join(beyond)}"
        raise api_error(ErrorId.JSStreamUpdateErrF, err=text)


def _refuse(text: str) -> NoReturn:
    raise api_error(ErrorId.JSStreamInvalidConfigF, err=text)


def _refuse_first(faults: Iterable[tuple[bool, str]]) -> None:
    for is_there, text in faults:
        if is_there:
            _refuse(text)


def _refuse_if_pedantic(pedantic: bool, text: str) -> None:
    """Raise ApiError in pedantic mode: a value that the client set is about to be replaced."""
    if pedantic:
        raise api_error(ErrorId.JSPedanticErrF, err=text)


def _check_texts(config: StreamConfig) -> None:
    if not is_valid_asset_name(config.name):
        _refuse("stream name is required and can not contain '.', '*', '>', '\\', '/'")
    if byte_length(config.name) > NAME_BYTES_MAX:
        _refuse(f"stream name is too long, maximum allowed is {NAME_BYTES_MAX}")
    if byte_length(config.description) > DESCRIPTION_BYTES_MAX:
        _refuse(f"stream description is too long, maximum allowed is {DESCRIPTION_BYTES_MAX}")
    if metadata_length(config.metadata) > METADATA_BYTES_MAX:
        _refuse(f"stream metadata exceeds maximum size of {METADATA_BYTES_MAX} bytes")
    if len(config.sources) > SOURCES_MAX:
        _refuse(f"stream has too many sources, maximum allowed is {SOURCES_MAX}")
    for source in config.sources if config.mirror is None else [config.mirror, *config.sources]:
        if len(source.subject_transforms) > TRANSFORMS_MAX:
            limit = f"maximum allowed is {TRANSFORMS_MAX}"
            _refuse(f"stream source has too many subject transforms, {limit}")


def _fill_limits(config: StreamConfig, *, pedantic: bool) -> dict[str, int]:
    """Return the number of replicas, and -1 for each limit that is not set."""
    filled = {"num_replicas": config.num_replicas or 1}
    if config.num_replicas > REPLICAS_MAX:
        _refuse(f"maximum replicas is {REPLICAS_MAX}")
    if config.num_replicas < 0:
        raise api_error(ErrorId.JSReplicasCountCannotBeNegative)
    for field in _UNLIMITED:
        limit = getattr(config, field)
        if limit == 0 or limit < -1:
            _refuse_if_pedantic(pedantic and limit < -1, f"{field} must be set to -1")
            filled[field] = -1
    if config.max_age < 0:
        _refuse("max age can not be negative")
    if 0 < config.max_age < SHORTEST_NS:
        _refuse("max age needs to be >= 100ms")
    return filled


def _duplicate_window(config: StreamConfig, rules: ConfigRules, *, pedantic: bool) -> int:
    window, longest = config.duplicate_window, rules.duplicate_window_ns_max
    if window == 0 and (config.mirror or config.sources):
        return 0  # the origin stream detected duplicates already
    if window == 0:
        window = DUPLICATE_WINDOW_NS
        if 0 < longest < window:
            text = "duplicate window limits are higher than current limits"
            _refuse_if_pedantic(pedantic, text)
            window = longest
        if 0 < config.max_age < window:
            _refuse_if_pedantic(pedantic, "duplicate window cannot be bigger than max age")
            window = config.max_age
    if window < 0:
        _refuse("duplicates window can not be negative")
    if 0 < config.max_age < window:
        _refuse("duplicates window can not be larger then max age")
    if 0 < longest < window:
        limit = format_duration_ns(longest)
        _refuse(f"duplicates window can not be larger then server limit of {limit}")
    if window < SHORTEST_NS:
        _refuse("duplicates window needs to be >= 100ms")
    return window


def _with_markers(config: StreamConfig, *, pedantic: bool) -> StreamConfig:
    """Allow lifetimes and rollups where delete markers are used, which need both.

    A sealed stream stays without rollups.
    """
    lifetime = config.subject_delete_marker_ttl
    if lifetime < 0:
        _refuse("subject delete marker TTL must not be negative")
    if lifetime == 0:
        return config
    if lifetime < _SECOND_NS:
        _refuse("subject delete marker TTL must be at least 1 second")
    allowed: dict[str, bool] = {}
    if not config.allow_msg_ttl:
        if pedantic:
            _refuse("subject delete marker cannot be set if message TTLs are disabled")
        allowed["allow_msg_ttl"] = True
    if not (config.allow_rollup_hdrs or config.sealed):
        if pedantic:
            _refuse("subject delete marker cannot be set if roll-ups are disabled")
        allowed |= {"allow_rollup_hdrs": True, "deny_purge": False}
    return config.model_copy(update=allowed)


def _with_schedules(config: StreamConfig, *, pedantic: bool) -> StreamConfig:
    """Allow rollups where schedules are used: a schedule replaces the one before it.

    A sealed stream stays without rollups.
    """
    if not config.allow_msg_schedules or config.sealed:
        return config
    if config.discard is DiscardPolicy.NEW:
        _refuse("message scheduling cannot use discard new")
    if config.allow_rollup_hdrs:
        return config
    if pedantic:
        _refuse("message scheduling cannot be set if roll-ups are disabled")
    return config.model_copy(update={"allow_rollup_hdrs": True, "deny_purge": False})


def _check_together(config: StreamConfig) -> None:
    """Check settings that exclude or require one another."""
    if config.deny_purge and config.allow_rollup_hdrs:
        _refuse("roll-ups require the purge permission")
    if config.allow_msg_counter:
        _check_counter(config)
    if config.discard_new_per_subject:
        if config.discard is not DiscardPolicy.NEW:
            _refuse("discard new per subject requires discard new policy to be set")
        if config.max_msgs_per_subject <= 0:
            _refuse("discard new per subject requires max msgs per subject > 0")


def _check_persistence(config: StreamConfig) -> None:
    if config.persist_mode is not PersistMode.ASYNC:
        return
    if config.storage is not Storage.FILE:
        _refuse("async persist mode is only supported on file storage")
    if config.num_replicas > 1:
        _refuse("async persist mode is not supported on replicated streams")
    if config.allow_atomic:
        _refuse("async persist mode is not supported with atomic batch publish")


def _check_counter(config: StreamConfig) -> None:
    """Check a counter stream, in which the last message of a subject is its total.

    So that message may neither be refused nor be removed. A delete marker is no total either;
    nats-server allows `subject_delete_marker_ttl`, and then the counters of such subjects are
    broken.
    """
    if config.discard is DiscardPolicy.NEW and not config.sealed:
        _refuse("counter stream cannot use discard new")
    if config.allow_msg_ttl or config.subject_delete_marker_ttl > 0:
        _refuse("counter stream cannot use message TTLs")
    if config.allow_msg_schedules:
        _refuse("counter stream cannot use message schedules")
    if config.retention is not Retention.LIMITS:
        _refuse("counter stream can only use limits retention")


def _check_subjects(config: StreamConfig) -> Steps[None]:
    """Check that subjects are valid, disjoint, and not the server's own unless `no_ack` is set."""
    subjects = config.subjects

    def tell(place: int, other: int | None) -> None:
        _check_subject(config, subjects[place])
        if other is not None:
            _refuse(f"subject {quoted(subjects[place])} overlaps with {quoted(subjects[other])}")

    yield from collisions(subjects, tell)


def _check_subject(config: StreamConfig, subject: str) -> None:
    if not is_valid(subject):
        _refuse("invalid subject")
    if subject == ">":
        if not config.no_ack:
            _refuse("capturing all subjects requires no-ack to be true")
        if config.num_replicas != 1:
            _refuse("capturing all subjects requires replicas of 1")
    if config.no_ack or subject[0] not in "$*>":
        return
    if any(collide(subject, space) for space in _API_SPACES) and not is_subset(
        subject, "$JS.EVENT.>"
    ):
        _refuse("subjects that overlap with jetstream api require no-ack to be true")
    if collide(subject, "$SYS.>") and not is_subset(subject, "$SYS.ACCOUNT.>"):
        _refuse("subjects that overlap with system api require no-ack to be true")


def _check_max_bytes(config: StreamConfig, limits: AccountLimits) -> None:
    in_memory = config.storage is Storage.MEMORY
    most = limits.memory_max_stream_bytes if in_memory else limits.storage_max_stream_bytes
    if limits.max_bytes_required and config.max_bytes <= 0:
        raise api_error(ErrorId.JSStreamMaxBytesRequired)
    if 0 < most < config.max_bytes:
        raise api_error(ErrorId.JSStreamMaxStreamBytesExceeded)


def _check_transform(config: StreamConfig) -> None:
    transform = config.subject_transform
    if transform is None:
        return
    if transform.src and not is_valid(transform.src):
        text = f"invalid subject {transform.src}"
        raise api_error(ErrorId.JSStreamTransformInvalidSource, err=text)
    if not transform.dest:
        return
    try:
        check_mapping(transform.src, transform.dest)
    except InvalidMapping as error:
        raise api_error(ErrorId.JSStreamTransformInvalidDestination, err=error) from None


def _check_republish(config: StreamConfig, *, pedantic: bool) -> Steps[StreamConfig]:
    if config.republish is None:
        return config
    republish, transform = config.republish, config.subject_transform
    if not republish.src:
        _refuse_if_pedantic(pedantic, "republish source can not be empty")
        republish = republish.model_copy(update={"src": ">"})
    if (
        republish.src == republish.dest == ">"
        and transform is not None
        and config.subjects == [transform.src]
    ):
        _refuse_if_pedantic(pedantic, "implicit republish based on subject transform")
        moved = {"src": transform.dest, "dest": transform.dest}
        republish = republish.model_copy(update=moved)
    for some in slices(config.subjects):
        if any(collide(republish.dest, subject) for subject in some):
            _refuse("stream configuration for republish destination forms a cycle")
        yield
    _check_republish_transform(republish)
    return config.model_copy(update={"republish": republish})


def _check_republish_transform(republish: RePublish) -> None:
    try:
        check_mapping(republish.src, republish.dest)
    except InvalidMapping:
        _refuse(
            "stream configuration for republish with transform"
            f" from '{republish.src}' to '{republish.dest}' not valid"
        )


def _check_placement(config: StreamConfig) -> StreamConfig:
    if config.placement is None:
        return config
    if config.placement == Placement():
        return config.model_copy(update={"placement": None})
    if config.placement.preferred:
        _refuse("preferred server not permitted in placement")
    return config


def _sealed(config: StreamConfig) -> StreamConfig:
    """Return the configuration of a sealed stream: no message is added or removed."""
    return config.model_copy(
        update={
            "max_age": 0,
            "discard": DiscardPolicy.NEW,
            "deny_delete": True,
            "deny_purge": True,
            "allow_rollup_hdrs": False,
        }
    )
