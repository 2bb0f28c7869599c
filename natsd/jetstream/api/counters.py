"""The counts of API requests, of a server or an account."""

from dataclasses import dataclass


@dataclass(slots=True)
class ApiCounters:
    """Counts of API requests: handled so far, answered with an error, and being handled now."""

    total: int = 0
    errors: int = 0
    inflight: int = 0
