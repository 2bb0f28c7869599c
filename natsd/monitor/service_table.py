"""The tables of the subjects on which the server answers over NATS, and a received request.

Source: nats-server's `Server.initEventTracking`, `registerSystemImports` and
`addSystemAccountExports`.
"""

from collections.abc import Iterator
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
OTHERS: Final = (
    ("$SYS.REQ.SERVER.PING", "STATSZ"),
    ("$SYS.REQ.USER.INFO", "USER.INFO"),
    ("$SYS.REQ.ACCOUNT.NSUBS", "NSUBS"),
    ("$SYS.DEBUG.SUBSCRIBERS", "SUBSCRIBERS"),
)
"""Further subjects of the system account, and the kind of their requests."""
PRIVATE: Final = ("USER.INFO", "SUBSCRIBERS")
"""Requests that only the server answers to which their client is connected."""
SLOW: Final = ("PROFILEZ", "SUBSCRIBERS")
"""Requests that take so long that others need not wait for their answers."""
WITHOUT_REPLY: Final = (*ACTIONS, "STATSZ")
"""Requests that have an effect even if they name no reply subject."""

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

    @property
    def is_for_all(self) -> bool:
        """Whether an account asks about itself, which concerns all servers of the cluster."""
        return self.kind.startswith("ACCOUNT.") and not self.account.is_system


def system_subjects(server_id: str) -> Iterator[tuple[str, str]]:
    """Yield the subjects that are served in the system account, and the kinds of their requests."""
    prefix = "$SYS.REQ.SERVER"
    for kind in SERVER_KINDS:
        yield f"{prefix}.PING.{kind}", kind
        yield f"{prefix}.{server_id}.{kind}", kind
    for action in ACTIONS:
        yield f"{prefix}.{server_id}.{action}", action
    for kind in ACCOUNT_KINDS:
        yield f"$SYS.REQ.ACCOUNT.*.{kind}", f"ACCOUNT.{kind}"
    yield from OTHERS


def account_subjects() -> Iterator[tuple[str, str]]:
    """Yield the subjects that are served in every other account, and the kinds of their requests.

    Their answers are about that account only. In a cluster they are passed on to all servers in the
    system account (other_answers.py), so these subjects are private.
    """
    for subject, imported, _ in IMPORTS:
        kind = imported.rpartition(".")[2]
        yield subject, "USER.INFO" if kind == "INFO" else f"ACCOUNT.{kind}"
