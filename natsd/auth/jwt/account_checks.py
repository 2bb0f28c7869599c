"""The checks of the claims of an account.

Source: nats-io/jwt v2 (account_claims.go: Account.Validate, Mapping.Validate).
"""

from typing import Final

from natsd.auth.jwt.account import (
    CLUSTER_TRAFFIC,
    AccountBody,
    AccountClaims,
    LimitsClaim,
    MappingClaim,
    StorageClaim,
)
from natsd.auth.jwt.activation import ActivationClaims
from natsd.auth.jwt.claims import check_info
from natsd.auth.jwt.decode import decode_as
from natsd.auth.jwt.issues import Issues
from natsd.auth.jwt.sharing import check_exports, check_service_imports
from natsd.auth.jwt.subjects import check_subject, has_wildcards
from natsd.auth.jwt.token import BadToken
from natsd.config.public_keys import Kind, is_public

WEIGHTS_MAX: Final = 100


def account_issues(claims: AccountClaims, now_s: float) -> Issues:
    """Return what is wrong with the claims of an account at a time."""
    issues = claims.issues(now_s)
    body = claims.body
    _check_imports(claims, issues)
    check_exports(body.exports, issues)
    _check_limits(body, issues)
    body.default_permissions.check(issues)
    for subject, destinations in body.mappings.items():
        _check_mapping(subject, destinations, issues)
    body.authorization.check(issues)
    if body.trace is not None:
        body.trace.check(issues)
    for key, scope in claims.signing_keys.items():
        if not is_public(key, Kind.ACCOUNT):
            issues.errors.append(
                f'"{key}" is not a valid account signing key'
                if scope is None
                else f"{key} is not an account public key"
            )
    check_info(body.description, body.info_url, issues)
    if body.cluster_traffic not in CLUSTER_TRAFFIC:
        issues.errors.append(f'unknown cluster traffic option: "{body.cluster_traffic}"')
    if is_public(claims.issuer, Kind.ACCOUNT) and body.limits != LimitsClaim():
        issues.warnings.append("self-signed account JWTs shouldn't contain operator limits")
    return issues


def _check_imports(claims: AccountClaims, issues: Issues) -> None:
    check_service_imports(claims.body.imports, issues)
    for each in claims.body.imports:
        activation = None
        if each.token:
            try:
                activation = decode_as(ActivationClaims, each.token)
            except BadToken:
                issues.errors.append(
                    f'import "{each.subject}" contains an invalid activation token'
                )
        each.check(claims.subject, activation, issues)


def _check_limits(body: AccountBody, issues: Issues) -> None:
    limits = body.limits
    if limits.tiered_limits:
        flat = {name: getattr(limits, name) for name in StorageClaim.__struct_fields__}
        if StorageClaim(**flat) != StorageClaim():
            issues.errors.append(
                "JetStream Limits and tiered JetStream Limits are mutually exclusive"
            )
        if "" in limits.tiered_limits:
            issues.errors.append('Tiered JetStream Limits can not contain a blank "" tier name')
    if limits.imports != -1 and len(body.imports) > limits.imports:
        issues.errors.append("the account contains more imports than allowed by the operator")
    if limits.exports != -1:
        if len(body.exports) > limits.exports:
            issues.errors.append("the account contains more exports than allowed by the operator")
        if not limits.wildcards and any(has_wildcards(each.subject) for each in body.exports):
            issues.errors.append(
                "the account contains wildcard exports that are not allowed by the operator"
            )


def _check_mapping(subject: str, destinations: tuple[MappingClaim, ...], issues: Issues) -> None:
    check_subject(subject, issues)
    sums: dict[str, int] = {}
    for each in destinations:
        check_subject(each.subject, issues)
        weight = each.weight or WEIGHTS_MAX
        if not 0 <= weight <= WEIGHTS_MAX:
            issues.errors.append(f'Mapping "{subject}" has a weight {weight} that exceeds 100')
        sums[each.cluster] = sums.get(each.cluster, 0) + weight
    for cluster, total in sums.items():
        if total > WEIGHTS_MAX:
            where = f' in cluster "{cluster}"' if cluster else ""
            issues.errors.append(
                f'Mapping "{subject}"{where} exceeds 100% among all of it\'s weighted to mappings'
            )
