"""The claims that all kinds of JWT have, and the parts that several kinds share.

- Each kind is a frozen structure; the decoder (decode.py) builds it from the JSON of a token whose
  signature is right.
- `issues` says what is wrong with the contents, as nats-server would: it judges each issue by
  whether the token is to be used or to be stored.

Source: nats-io/jwt v2 (claims.go, types.go, revocation_list.go).
"""

import functools
import ipaddress
import re
from typing import Annotated, ClassVar, Final

import msgspec

from natsd.auth.jwt.issues import Issues
from natsd.auth.jwt.subjects import check_subject
from natsd.config.public_keys import Kind

EVERYONE: Final = "*"
"""The key of a revocation of all users."""
INFO_BYTES_MAX: Final = 8 * 1024
_CLOCK: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d):([0-5]\d)")

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """Who says what about whom, and when it holds; times are Unix seconds, 0 is "not given"."""

    KIND: ClassVar[str] = "generic"
    ISSUERS: ClassVar[tuple[Kind, ...]] = ()  # the kinds of keys that may sign; empty: any

    subject: str = msgspec.field(name="sub", default="")
    issuer: str = msgspec.field(name="iss", default="")
    audience: str = msgspec.field(name="aud", default="")
    name: str = ""
    id: str = msgspec.field(name="jti", default="")
    issued_at: Int64 = msgspec.field(name="iat", default=0)
    not_before: Int64 = msgspec.field(name="nbf", default=0)
    expires: Int64 = msgspec.field(name="exp", default=0)

    def issues(self, now_s: float) -> Issues:
        """Return what is wrong with the claims at a time."""
        issues = Issues()
        if 0 < self.expires < int(now_s):
            issues.times.append("claim is expired")
        if self.not_before > 0 and self.not_before > int(now_s):
            issues.times.append("claim is not yet valid")
        return issues


class RulesClaim(msgspec.Struct, frozen=True):
    """Subjects that are allowed, and subjects that are denied."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def check(self, issues: Issues, *, may_have_queue: bool) -> None:
        """Check the subjects; those of subscriptions may be followed by a queue."""
        for rule in (*self.allow, *self.deny):
            words = rule.split(" ")
            if len(words) > 2:
                issues.errors.append(f'Permission Subject "{rule}" contains too many spaces')
                continue
            for word in words:
                check_subject(word, issues)
            if len(words) == 2 and not may_have_queue:
                issues.errors.append(f'Permission Subject "{rule}" is not allowed to contain queue')


class ResponsesClaim(msgspec.Struct, frozen=True):
    """How often, and for how many nanoseconds, a reply subject may be published to."""

    max: Int64 = 0
    ttl: Int64 = 0


class PermissionsClaim(msgspec.Struct, frozen=True, kw_only=True):
    """What a user may publish and subscribe to; all empty: everything."""

    pub: RulesClaim = RulesClaim()
    sub: RulesClaim = RulesClaim()
    resp: ResponsesClaim | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is said."""
        return not (self.pub.allow or self.pub.deny or self.sub.allow or self.sub.deny or self.resp)

    def check(self, issues: Issues) -> None:
        """Check all subjects."""
        self.sub.check(issues, may_have_queue=True)
        self.pub.check(issues, may_have_queue=False)


class TimeRange(msgspec.Struct, frozen=True):
    """A part of the day, from `start` to `end`, as hh:mm:ss; it may pass midnight."""

    start: str = ""
    end: str = ""

    def check(self, issues: Issues) -> None:
        """Check that both times are there."""
        for name, value in (("start", self.start), ("end", self.end)):
            if not value:
                article = "an" if name == "end" else "a"
                issues.errors.append(f"time ranges start must contain {article} {name}")
            elif seconds_of_day(value) is None:
                issues.errors.append(f'{name} in time range is invalid "{value}"')


class UserPermissions(PermissionsClaim, frozen=True, kw_only=True):
    """All that a user JWT, or the template of a scoped signing key, says about rights."""

    src: tuple[str, ...] = ()  # address ranges that the user may connect from; empty: any
    times: tuple[TimeRange, ...] = ()
    times_location: str = ""  # time zone of `times`; empty: that of the server
    subs: Int64 = 0
    data: Int64 = 0
    payload: Int64 = 0
    bearer_token: bool = False  # the user needs no signature of the nonce
    proxy_required: bool = False
    allowed_connection_types: tuple[str, ...] = ()

    @property
    def is_unset(self) -> bool:
        """Whether everything has its zero value, as it must for the user of a scoped key."""
        return all(getattr(self, name) == default for name, default in _unset())

    def check_limits(self, issues: Issues) -> None:
        """Check permissions, address ranges, times and the time zone."""
        self.check(issues)
        for network in self.src:
            if parse_network(network) is None:
                issues.errors.append(f'invalid cidr "{network}" in user src limits')
        for each in self.times:
            each.check(issues)
        if self.times_location and not is_time_zone(self.times_location):
            issues.errors.append(
                "could not parse iana time zone by name: unknown time zone " + self.times_location
            )


@functools.cache
def _unset() -> list[tuple[str, object]]:
    """Return the fields of permissions with their zero values."""
    unset = UserPermissions()
    return [(name, getattr(unset, name)) for name in UserPermissions.__struct_fields__]


def is_revoked(revocations: dict[str, int], key: str, issued_at: int) -> bool:
    """Return whether a token for `key` that was issued at that time is revoked.

    A revocation of everyone counts as well as that of the key: it holds for all tokens that were
    issued until its time.
    """
    return any(
        (time := revocations.get(name)) is not None and time >= issued_at
        for name in (EVERYONE, key)
    )


def check_info(description: str, info_url: str, issues: Issues) -> None:
    """Check the description and the link of an account or an export."""
    if len(description) > INFO_BYTES_MAX:
        issues.errors.append("Description is too long")
    if info_url:
        if len(info_url) > INFO_BYTES_MAX:
            issues.errors.append("Info URL is too long")
        scheme, separator, rest = info_url.partition("://")
        if not scheme or not separator or not rest.strip("/"):
            issues.errors.append("error parsing info url: no hostname or scheme")


def seconds_of_day(text: str) -> int | None:
    """Return the seconds since midnight of a time hh:mm:ss; None: it is none."""
    found = _CLOCK.fullmatch(text)
    if found is None:
        return None
    hours, minutes, seconds = map(int, found.groups())
    return (hours * 60 + minutes) * 60 + seconds


def parse_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Return an address range such as 10.0.0.0/8; None: it is none."""
    if "/" not in text:
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def is_time_zone(name: str) -> bool:
    """Return whether there is a time zone of that name."""
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        return False
    return True
