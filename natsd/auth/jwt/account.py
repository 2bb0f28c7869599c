"""The claims of an account: what it may use, what it shares, and who signs its users.

Source: nats-io/jwt v2 (account_claims.go, signingkeys.go).
"""

from typing import ClassVar, Final

import msgspec

from natsd.auth.jwt.claims import Claims, Int64, PermissionsClaim, UserPermissions
from natsd.auth.jwt.issues import Issues
from natsd.auth.jwt.sharing import ExportClaim, ImportClaim
from natsd.auth.jwt.subjects import check_subject, has_wildcards
from natsd.config.public_keys import Kind, is_public

ANY_ACCOUNT: Final = "*"
CLUSTER_TRAFFIC: Final = ("", "system", "owner")


class StorageClaim(msgspec.Struct, frozen=True, kw_only=True):
    """What the streams and consumers of an account, or of one tier, may take; -1: no limit."""

    mem_storage: Int64 = 0  # 0: no streams in memory
    disk_storage: Int64 = 0  # 0: no streams on disk
    streams: Int64 = 0
    consumer: Int64 = 0
    max_ack_pending: Int64 = 0
    mem_max_stream_bytes: Int64 = 0
    disk_max_stream_bytes: Int64 = 0
    max_bytes_required: bool = False


class LimitsClaim(StorageClaim, frozen=True, kw_only=True):
    """What an account may use; -1: no limit."""

    subs: Int64 = 0
    data: Int64 = 0
    payload: Int64 = 0
    imports: Int64 = 0
    exports: Int64 = 0
    wildcards: bool = False  # exports may have wildcards
    disallow_bearer: bool = False
    conn: Int64 = 0
    leaf: Int64 = 0
    tiered_limits: dict[str, StorageClaim] = {}

    @property
    def has_jetstream(self) -> bool:
        """Whether the account has streams."""
        storages = self.tiered_limits.values() or (self,)
        return any(each.mem_storage or each.disk_storage for each in storages)


class MappingClaim(msgspec.Struct, frozen=True, kw_only=True):
    """One destination of a mapped subject."""

    subject: str = ""
    weight: int = 0  # 0 is 100
    cluster: str = ""


class ExternalAuthorization(msgspec.Struct, frozen=True, kw_only=True):
    """The auth callout of an account: it is asked about all users except `auth_users`."""

    auth_users: tuple[str, ...] = ()
    allowed_accounts: tuple[str, ...] = ()
    xkey: str = ""

    @property
    def is_enabled(self) -> bool:
        """Whether there is an auth callout."""
        return bool(self.auth_users)

    def allows(self, account: str) -> bool:
        """Return whether the service may put users into another account."""
        return self.allowed_accounts == (ANY_ACCOUNT,) or account in self.allowed_accounts

    def check(self, issues: Issues) -> None:
        """Check the keys."""
        if self.allowed_accounts and not self.auth_users:
            issues.errors.append(
                "External authorization cannot have accounts without users specified"
            )
        issues.errors += [
            f'AuthUser "{key}" is not a valid user public key'
            for key in self.auth_users
            if not is_public(key, Kind.USER)
        ]
        for account in self.allowed_accounts:
            if account == ANY_ACCOUNT:
                if len(self.allowed_accounts) > 1:
                    issues.errors.append('AllowedAccounts can only be a list of accounts or "*"')
            elif not is_public(account, Kind.ACCOUNT):
                issues.errors.append(f'Account "{account}" is not a valid account public key')
        if self.xkey and not is_public(self.xkey, Kind.CURVE):
            issues.errors.append(f'XKey "{self.xkey}" is not a valid public xkey')


class TraceClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Where messages with a sampled `traceparent` are traced."""

    dest: str = ""
    sampling: int = 0  # 1 to 100; 0 is 100

    def check(self, issues: Issues) -> None:
        """Check the subject and the rate."""
        found = Issues()
        check_subject(self.dest, found)
        if found.errors:
            issues.errors.append(f"the account Trace.Destination {found.errors[0]}")
        if has_wildcards(self.dest):
            issues.errors.append(
                f'the account Trace.Destination subject "{self.dest}"'
                " is not a valid publish subject"
            )
        if not 0 <= self.sampling <= 100:
            issues.errors.append(
                f"the account Trace.Sampling value '{self.sampling}' is not valid,"
                " should be in the range [1..100]"
            )


class ScopeClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A signing key whose users all have the rights of its template."""

    kind: str = ""
    key: str = ""
    role: str = ""
    template: UserPermissions = UserPermissions(subs=-1, data=-1, payload=-1)
    description: str = ""


class AccountBody(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an account JWT that is particular to accounts."""

    imports: tuple[ImportClaim, ...] = ()
    exports: tuple[ExportClaim, ...] = ()
    limits: LimitsClaim = LimitsClaim()
    signing_keys: tuple[str | ScopeClaim, ...] = ()
    revocations: dict[str, int] = {}
    default_permissions: PermissionsClaim = PermissionsClaim()
    mappings: dict[str, tuple[MappingClaim, ...]] = {}
    authorization: ExternalAuthorization = ExternalAuthorization()
    trace: TraceClaim | None = None
    cluster_traffic: str = ""
    description: str = ""
    info_url: str = ""
    tags: tuple[str, ...] = ()
    type: str = ""
    version: int = 0


class AccountClaims(Claims, frozen=True, kw_only=True):
    """An account JWT; `account_issues` (account_checks.py) says what is wrong with it."""

    KIND: ClassVar[str] = "account"
    ISSUERS: ClassVar[tuple[Kind, ...]] = (Kind.ACCOUNT, Kind.OPERATOR)

    body: AccountBody = msgspec.field(name="nats", default=AccountBody())

    @property
    def signing_keys(self) -> dict[str, ScopeClaim | None]:
        """The signing keys, with the scope of those that have one."""
        return {
            each if isinstance(each, str) else each.key: None if isinstance(each, str) else each
            for each in self.body.signing_keys
        }
