"""What JetStream of one account gives to all its streams and consumers.

    AccountResources       limits, files, subjects, publisher of an account        this module
      └ StreamAccount      and its streams                                         stream/stream.py
          └ JetStreamAccount   and every change to them                            account.py

Promise
- Nothing here knows a stream or a consumer: all of them may use it.
"""

from natsd.accounts import Account
from natsd.core.network import AccountPublisher
from natsd.jetstream.claims import SubjectClaims
from natsd.jetstream.server_resources import ServerResources
from natsd.jetstream.stream.files import AccountFiles
from natsd.jetstream.tiers import UNLIMITED, AccountTiers, Tiers


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
