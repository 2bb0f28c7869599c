"""What JetStream of one account gives to all its streams and consumers.

    AccountResources       limits, files, subjects, publisher of an account        this module
      └ StreamAccount      and its streams                                         stream/stream.py
          └ JetStreamAccount   and every change to them                            account.py

Promise
- Nothing here knows a stream or a consumer: all of them may use it.
- The name of an account is the name of its directory, as on nats-server. `why_no_directory` refuses
  names that would lead elsewhere; nats-server nests or leaves its directory with them.
"""

from typing import Final

from natsd.accounts import Account
from natsd.accounts.directory import is_account_name
from natsd.core.network import AccountPublisher
from natsd.jetstream.claims import SubjectClaims
from natsd.jetstream.server_resources import ServerResources
from natsd.jetstream.stream.files import AccountFiles
from natsd.jetstream.tiers import UNLIMITED, AccountTiers, Tiers
from natsd.store.commit.volume import LOCK_NAME
from natsd.store.disk.disk import is_removed

OWN_PREFIXES: Final = ("journal.", "raft.")
NAME_BYTES_MAX: Final = 255
"""Longest name of a directory."""


class AccountResources:
    """What JetStream of one account gives to its streams and consumers."""

    def __init__(
        self,
        jetstream: ServerResources,
        account: Account,
        limits: AccountTiers = UNLIMITED,
    ) -> None:
        """Create them without files; `limits` maps tier names to limits (see tiers.py)."""
        self.jetstream = jetstream
        self.account = account
        self.tiers = Tiers(jetstream.usage, limits)
        self.publisher = AccountPublisher(jetstream.reactor, account.sublist)
        self.files = AccountFiles(jetstream.directory / account.name)
        self.claims = SubjectClaims()

    @property
    def name(self) -> str:
        """The name of the account."""
        return self.account.name


def why_no_directory(account: str) -> str:
    """Return why no directory can have the account's name; empty: one can."""
    if not is_account_name(account):
        return "the name cannot be the name of a directory"
    if len(account.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        return f"the name is longer than {NAME_BYTES_MAX} bytes"
    if account == LOCK_NAME or account.startswith(OWN_PREFIXES) or is_removed(account):
        return "JetStream may have a file of that name"
    return ""
