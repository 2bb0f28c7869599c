"""Names of assets, subjects of the API and the sizes that bound them.

- `API_LEVEL` is what clients gate features on. Ours is that of 2.14: all settings up to level 4 are
  understood, and those that are not served yet are refused with their documented errors, never
  silently ignored.

Source: reference §6.2, §6.4, §6.16, §12.
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

REQUIRED_LEVEL_KEY: Final = "_nats.req.level"
SERVER_VERSION_KEY: Final = "_nats.ver"
SERVER_LEVEL_KEY: Final = "_nats.level"

NAME_BYTES_MAX: Final = 255
DESCRIPTION_BYTES_MAX: Final = 4 * 1024
METADATA_BYTES_MAX: Final = 128 * 1024

# Items of lists in configurations. nats-server has no limits; what is beyond these would hold the
# loop when it is begun, shown or changed.
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
    """A stream's or consumer's: it is one token of a subject, and a directory."""
    return bool(name) and _FORBIDDEN.isdisjoint(name)


def byte_length(text: str) -> int:
    """Limits on texts count bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def metadata_length(metadata: Mapping[str, str]) -> int:
    """Bytes of all keys and values."""
    return sum(byte_length(key) + byte_length(value) for key, value in metadata.items())


def why_unsupported(metadata: Mapping[str, str]) -> str:
    """Why a stream or consumer with this metadata cannot be served here; empty: it can."""
    level = metadata.get(REQUIRED_LEVEL_KEY) or "0"
    if level.isdecimal() and len(level) <= _LEVEL_DIGITS_MAX and int(level) <= API_LEVEL:
        return ""
    return f"unsupported - required API level: {level}, current API level: {API_LEVEL}"


def domain_api_prefix(domain: str) -> str:
    """What stands for `$JS.API` in requests that name the domain."""
    return f"$JS.{domain}.API"


def pull_subject(stream: str, consumer: str) -> str:
    """Where pull requests arrive."""
    return f"{API_PREFIX}.CONSUMER.MSG.NEXT.{stream}.{consumer}"


def ack_subjects(stream: str, consumer: str, domain: str, account_hash: str) -> tuple[str, str]:
    """Where acknowledgements arrive: the old form and the one with domain and account."""
    return (
        f"{ACK_PREFIX}.{stream}.{consumer}.>",
        f"{ACK_PREFIX}.{domain or '_'}.{account_hash}.{stream}.{consumer}.>",
    )


def flow_control_subjects(
    stream: str, consumer: str, domain: str, account_hash: str
) -> tuple[str, str]:
    """Where flow control is answered: the old form and the one with domain and account."""
    return (
        f"{FLOW_CONTROL_PREFIX}.{stream}.{consumer}.*",
        f"{FLOW_CONTROL_PREFIX}.{domain or '_'}.{account_hash}.{stream}.{consumer}.>",
    )


def snapshot_ack_prefix(stream: str, identity: str) -> str:
    """What the subjects begin with on which the chunks of one snapshot are acknowledged."""
    return f"$JS.SNAPSHOT.ACK.{stream}.{identity}"


def restore_subject(stream: str, identity: str) -> str:
    """Where the chunks of one restore arrive."""
    return f"$JS.SNAPSHOT.RESTORE.{stream}.{identity}"


def direct_get_subjects(stream: str) -> tuple[str, str]:
    """Where direct gets arrive: with a body, and for the last message of the subject behind."""
    return f"{API_PREFIX}.DIRECT.GET.{stream}", f"{API_PREFIX}.DIRECT.GET.{stream}.>"
