"""Models of an account's use of JetStream.

Source: nats-server's `JSApiAccountInfoResponse`, `JetStreamAccountStats` and
`JetStreamAccountLimits`.
"""

from pydantic import Field

from natsd.jetstream.models.base import Int, Int64, Model, Omitempty, Uint64


class AccountLimits(Model):
    """Limits of an account or of one of its tiers; -1: no limit. Sizes are bytes."""

    max_memory: Int64 = -1
    max_storage: Int64 = -1
    max_streams: Int = -1
    max_consumers: Int = -1
    max_ack_pending: Int = -1
    memory_max_stream_bytes: Int64 = -1
    storage_max_stream_bytes: Int64 = -1
    max_bytes_required: bool = False


class Tier(Model):
    """Usage and limits of one tier, or of the whole account; sizes are bytes."""

    memory: Uint64 = 0
    storage: Uint64 = 0
    reserved_memory: Uint64 = 0
    reserved_storage: Uint64 = 0
    streams: Int = 0
    consumers: Int = 0
    limits: AccountLimits = AccountLimits()


class ApiStats(Model):
    """Requests since the start; `level` is the API level of the server."""

    level: Int = 0
    total: Uint64 = 0
    errors: Uint64 = 0
    inflight: Omitempty[Uint64] = 0


class AccountInfo(Tier):
    """Usage, limits and requests of an account."""

    domain: Omitempty[str] = ""
    api: ApiStats = ApiStats()
    tiers: Omitempty[dict[str, Tier]] = Field(default_factory=dict)
