"""What is told about an account's use of JetStream.

Source: reference §6.15.
"""

from pydantic import Field

from natsd.jetstream.models.base import Int, Int64, Model, Omitempty, Uint64


class AccountLimits(Model):
    """What an account may use; -1: no limit."""

    max_memory: Int64 = -1
    max_storage: Int64 = -1
    max_streams: Int = -1
    max_consumers: Int = -1
    max_ack_pending: Int = -1
    memory_max_stream_bytes: Int64 = -1
    storage_max_stream_bytes: Int64 = -1
    max_bytes_required: bool = False


class Tier(Model):
    """Use and limits of one tier, or of all."""

    memory: Uint64 = 0
    storage: Uint64 = 0
    reserved_memory: Uint64 = 0
    reserved_storage: Uint64 = 0
    streams: Int = 0
    consumers: Int = 0
    limits: AccountLimits = AccountLimits()


class ApiStats(Model):
    """Requests since the start; `level` is what the server supports."""

    level: Int = 0
    total: Uint64 = 0
    errors: Uint64 = 0
    inflight: Omitempty[Uint64] = 0


class AccountInfo(Tier):
    """An account: use, limits and requests."""

    domain: Omitempty[str] = ""
    api: ApiStats = ApiStats()
    tiers: Omitempty[dict[str, Tier]] = Field(default_factory=dict)
