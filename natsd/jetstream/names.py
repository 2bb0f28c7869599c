"""Names of assets, subjects of the API, and limits on sizes.

- `API_LEVEL` is the level by which clients decide which features they use. This server has the
  level of 2.14: all settings up to level 4 are understood; settings that are not served yet are
  refused with their documented errors, never silently ignored.

Source: nats-server's jetstream_api.go (subjects), jetstream_versioning.go (API level, ADR-44) and
`checkStreamCfg` (limits).
"""

from collections.abc import Mapping
from typing import Final

from natsd.version import API_LEVEL as API_LEVEL

API_PREFIX: Final = "$JS.API"
ACK_PREFIX: Final = "$JS.ACK"
FLOW_CONTROL_PREFIX: Final = "$JS.FC"
ADVISORY_PREFIX: Final = "$JS.EVENT.ADVISORY"
METRIC_PREFIX: Final = "$JS.EVENT.METRIC"
SYSTEM_QUEUE: Final = "_sys_"

ASSET_SPACES: Final = ("DIRECT.GET", "CONSUMER.MSG.NEXT.")
"""Prefixes of the API subjects that streams and consumers serve; nats-server has the same."""
DOMAIN_SPACES: Final = ("STREAM.>", "CONSUMER.>", "META.>", "SERVER.>", "ACCOUNT.>")
"""Subjects that nats-server maps from a domain's prefix to the API, requests or not."""

REQUIRED_LEVEL_KEY: Final = "_nats.req.level"
SERVER_VERSION_KEY: Final = "_nats.ver"
SERVER_LEVEL_KEY: Final = "_nats.level"

NAME_BYTES_MAX: Final = 255
DESCRIPTION_BYTES_MAX: Final = 4 * 1024
METADATA_BYTES_MAX: Final = 128 * 1024

# Largest number of items of lists in configurations. nats-server has no such limits; a longer list
# would hold the event loop when the asset is started, shown or changed.
FILTERS_MAX: Final = 20_000
SOURCES_MAX: Final = 1_024
TRANSFORMS_MAX: Final = 1_024
BACKOFF_MAX: Final = 1_024
GROUPS_MAX: Final = 256

NAMES_LIMIT: Final = 1024
LIST_LIMIT: Final = 256
SUBJECT_DETAILS_LIMIT: Final = 100_000

_LEVEL_DIGITS_MAX: Final = 9
_FORBIDDEN: Final = frozenset(" .*>\\/\x7f") | {chr(code) for code in range(32)}


def is_valid_asset_name(name: str) -> bool:
    """Return whether a stream or consumer may have this name.

    A name is one token of a subject, and the name of a directory.
    """
    return bool(name) and _FORBIDDEN.isdisjoint(name)


def byte_length(text: str) -> int:
    """Return the length of the text in UTF-8; limits on texts count bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def metadata_length(metadata: Mapping[str, str]) -> int:
    """Return the bytes of all keys and values."""
    return sum(byte_length(key) + byte_length(value) for key, value in metadata.items())


def why_unsupported(metadata: Mapping[str, str]) -> str:
    """Return why an asset with this metadata cannot be served here; empty: it can."""
    level = metadata.get(REQUIRED_LEVEL_KEY) or "0"
    if level.isdecimal() and len(level) <= _LEVEL_DIGITS_MAX and int(level) <= API_LEVEL:
        return ""
    return f"unsupported - required API level: {level}, current API level: {API_LEVEL}"


def domain_api_prefix(domain: str) -> str:
    """Return the prefix that replaces `$JS.API` in requests that name the domain."""
    return f"$JS.{domain}.API"


def pull_subject(stream: str, consumer: str) -> str:
    """Return the subject on which a consumer receives pull requests."""
    return f"{API_PREFIX}.CONSUMER.MSG.NEXT.{stream}.{consumer}"


def ack_subjects(stream: str, consumer: str, domain: str, account_hash: str) -> tuple[str, str]:
    """Return the two subjects on which a consumer receives acknowledgements.

    The first has the old form, the second the form with domain and account hash.
    """
    return (
        f"{ACK_PREFIX}.{stream}.{consumer}.>",
        f"{ACK_PREFIX}.{domain or '_'}.{account_hash}.{stream}.{consumer}.>",
    )


def flow_control_subjects(
    stream: str, consumer: str, domain: str, account_hash: str
) -> tuple[str, str]:
    """Return the two subjects on which a consumer receives flow-control replies.

    The first has the old form, the second the form with domain and account hash.
    """
    return (
        f"{FLOW_CONTROL_PREFIX}.{stream}.{consumer}.*",
        f"{FLOW_CONTROL_PREFIX}.{domain or '_'}.{account_hash}.{stream}.{consumer}.>",
    )


def snapshot_ack_prefix(stream: str, identity: str) -> str:
    """Return the prefix of the subjects on which the chunks of one snapshot are acknowledged."""
    return f"$JS.SNAPSHOT.ACK.{stream}.{identity}"


def restore_subject(stream: str, identity: str) -> str:
    """Return the subject on which the chunks of one restore arrive."""
    return f"$JS.SNAPSHOT.RESTORE.{stream}.{identity}"


def direct_get_subjects(stream: str) -> tuple[str, str]:
    """Return the two subjects of direct gets on a stream.

    The first takes requests with a body. The second ends with the subject whose last message is
    requested.
    """
    return f"{API_PREFIX}.DIRECT.GET.{stream}", f"{API_PREFIX}.DIRECT.GET.{stream}.>"
