"""The tables of the subjects on which monitoring is served over NATS, and a received request.

Source: nats-server's `Server.initEventTracking`.
"""

from dataclasses import dataclass
from typing import Final

from natsd.accounts import Account
from natsd.core.network import Session

SERVER_KINDS: Final = (
    *("IDZ", "STATSZ", "VARZ", "SUBSZ", "CONNZ", "ROUTEZ", "GATEWAYZ", "LEAFZ", "ACCOUNTZ", "JSZ"),
    *("HEALTHZ", "PROFILEZ", "EXPVARZ", "IPQUEUESZ", "RAFTZ"),
)
"""Requests served on `$SYS.REQ.SERVER.PING.<kind>` and `$SYS.REQ.SERVER.<id>.<kind>`."""
ACTIONS: Final = ("RELOAD", "KICK", "LDM")
"""Actions served on `$SYS.REQ.SERVER.<id>.<action>`."""
ACCOUNT_KINDS: Final = ("SUBSZ", "CONNZ", "LEAFZ", "JSZ", "INFO", "STATZ", "CONNS")
"""Requests served on `$SYS.REQ.ACCOUNT.<account>.<kind>`."""

# Subject in the account, its subject in the system account, whether the requestor's identity is
# shared.
IMPORTS: Final = (
    ("$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.ACCOUNT.{account}.CONNZ", False),
    ("$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.ACCOUNT.{account}.CONNZ", False),
    ("$SYS.REQ.ACCOUNT.PING.STATZ", "$SYS.REQ.ACCOUNT.{account}.STATZ", False),
    ("$SYS.REQ.USER.INFO", "$SYS.REQ.USER.{account}.INFO", True),
)
EXPORTS: Final = (
    ("$SYS.REQ.ACCOUNT.*.CONNZ", "Streamed"),
    ("$SYS.REQ.ACCOUNT.*.STATZ", "Streamed"),
    ("$SYS.DEBUG.SUBSCRIBERS", "Singleton"),
    ("$SYS.REQ.USER.*.INFO", "Singleton"),
)


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """A received request; `about` is the account that it concerns, empty for the server."""

    kind: str
    about: str
    account: Account
    reply: str
    headers: bytes
    data: bytes
    origin: Session | None
