"""Whom the server trusts: the keys of operators, by which the JWTs of accounts are signed.

- `operator` gives JWTs of operators; `trusted_keys` gives bare keys. Only one of them is allowed.
- Of an operator with `strict_signing_key_usage` the own key signs no account, and no account that
  its keys signed signs a user with its own key.

Source: nats-server's `validateTrustedOperators` (server/jwt.go), `processTrustedKeys`
(server/server.go).
"""

from dataclasses import dataclass

from natsd.auth.jwt.account import AccountClaims
from natsd.auth.jwt.decode import decode_as
from natsd.auth.jwt.operator import OperatorClaims, parse_version
from natsd.auth.jwt.token import BadToken
from natsd.auth.jwt.user import UserClaims
from natsd.auth.resolver.services import ClaimsTrust
from natsd.config import Options, OptionsError
from natsd.config.public_keys import Kind, is_public
from natsd.config.settings import SettingPath, raise_together
from natsd.version import NATS_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """What the settings say about operators."""

    keys: frozenset[str]  # keys that may sign accounts
    strict_keys: frozenset[str]  # those whose accounts need signing keys for their users
    system_account: str  # public key; empty: none is given
    pinned_accounts: frozenset[str] | None  # accounts whose users may log in; None: all
    sentinel: str  # user JWT of clients that have none; empty: they are refused
    claims: ClaimsTrust  # who may change JWTs


def read_trust(options: Options) -> Trust:
    """Return whom to trust. Raises OptionsError if the settings contradict each other."""
    operators = [_read_operator(index, jwt) for index, jwt in enumerate(options.operators)]
    if operators and options.trusted_keys:
        raise OptionsError(
            "conflicting options for 'TrustedKeys' and 'TrustedOperators'", setting="trusted_keys"
        )
    if operators:
        _check_operators(options, operators)
    keys, strict_keys = set(options.trusted_keys), set[str]()
    for claims in operators:
        if claims.body.strict_signing_key_usage:
            strict_keys |= set(claims.body.signing_keys)
        else:
            keys.add(claims.subject)
        keys |= set(claims.body.signing_keys)
    if not keys and options.resolver is not None and options.resolver.dir is not None:
        raise OptionsError("resolver: no operator key found", setting="resolver")
    system = options.system_account or (operators[0].body.system_account if operators else "")
    return Trust(
        keys=frozenset(keys),
        strict_keys=frozenset(strict_keys),
        system_account=system,
        pinned_accounts=_read_pinned(options, system),
        sentinel=_read_sentinel(options),
        claims=_claims_trust(operators, system),
    )


def read_preload(options: Options) -> dict[str, AccountClaims]:
    """Return the claims of `resolver_preload` by account. Raises OptionsError."""
    if options.resolver_preload and options.resolver is not None and options.resolver.kind == "url":
        raise OptionsError(
            "resolver preloads only available for writeable resolver types MEM/DIR/CACHE_DIR",
            setting="resolver_preload",
        )
    found: dict[str, AccountClaims] = {}
    errors = []
    for name, jwt in options.resolver_preload.items():
        try:
            found[name] = decode_as(AccountClaims, jwt)
        except BadToken as error:
            text = f'preload account error for "{name}": {error}'
            errors.append(OptionsError(text, path=("resolver_preload", name)))
    raise_together(errors)
    return found


def _read_operator(index: int, jwt: str) -> OperatorClaims:
    try:
        return decode_as(OperatorClaims, jwt)
    except BadToken as error:
        raise OptionsError(
            f"operator: the JWT is not valid: {error}", path=("operators", index)
        ) from None


def _check_operators(options: Options, operators: list[OperatorClaims]) -> None:
    login = options.authorization
    wrong: list[tuple[object, SettingPath, str]] = [
        (
            options.resolver is None,
            ("operators",),
            "operators require an account resolver to be configured",
        ),
        (
            options.accounts,
            ("accounts",),
            "operators do not allow Accounts to be configured directly",
        ),
        (
            login.users,
            ("authorization", "users"),
            "operators do not allow users to be configured directly",
        ),
        (
            options.no_auth_user,
            ("no_auth_user",),
            "no_auth_user not compatible with Trusted Operator",
        ),
        (
            login.auth_callout,
            ("authorization", "auth_callout"),
            "operators do not allow authorization callouts to be configured directly",
        ),
    ]
    raise_together([OptionsError(text, path=path) for is_wrong, path, text in wrong if is_wrong])
    assert options.resolver is not None
    named = {claims.body.system_account for claims in operators} - {""}
    if options.system_account:
        if named and options.system_account not in named:
            raise OptionsError(
                "system_account in config and operator JWT must be identical",
                setting="system_account",
            )
    elif not operators[0].body.system_account and options.resolver.kind in {"full", "cache"}:
        raise OptionsError(
            "using nats based account resolver - the system account needs to be specified"
            " in configuration or the operator jwt",
            setting="resolver",
        )
    for index, claims in enumerate(operators):
        path = ("operators", index)
        if reason := _version_mismatch(claims):
            raise OptionsError(reason, path=path)
        for key in (claims.subject, *claims.body.signing_keys):
            if not is_public(key, Kind.OPERATOR):
                raise OptionsError(
                    f'trusted Keys "{key}" are required to be a valid public operator nkey',
                    path=path,
                )


def _version_mismatch(claims: OperatorClaims) -> str:
    """Return why this server is not of the version that an operator expects; empty: it is."""
    expected = claims.body.assert_server_version
    least, own = parse_version(expected), parse_version(NATS_VERSION.partition("-")[0])
    if least is None:
        return (
            f"operator {claims.subject} expects version {expected} got error instead:"
            " asserted server version must be of the form <major>.<minor>.<update>"
        )
    if own is not None and least > own:
        return (
            f"operator {claims.subject} expected version {expected} > server version {NATS_VERSION}"
        )
    return ""


def _read_pinned(options: Options, system_account: str) -> frozenset[str] | None:
    pinned = options.resolver_pinned_accounts
    if not pinned:
        return None
    for index, key in enumerate(pinned):
        if not is_public(key, Kind.ACCOUNT):
            raise OptionsError(
                f'pinned account key "{key}" is not a valid public account nkey',
                path=("resolver_pinned_accounts", index),
            )
    return frozenset({*pinned, system_account} - {""})


def _read_sentinel(options: Options) -> str:
    jwt = options.default_sentinel
    if not jwt:
        return ""
    try:
        claims = decode_as(UserClaims, jwt)
    except BadToken:
        raise OptionsError("default sentinel JWT not valid", setting="default_sentinel") from None
    is_scoped = bool(claims.body.issuer_account) and claims.body.is_unset
    if not claims.body.bearer_token and not is_scoped:
        raise OptionsError("default sentinel must be a bearer token", setting="default_sentinel")
    return jwt


def _claims_trust(operators: list[OperatorClaims], system_account: str) -> ClaimsTrust:
    if not operators:
        return ClaimsTrust(
            operator="",
            operator_keys=frozenset(),
            is_strict=False,
            system_account=system_account,
        )
    first = operators[0]
    is_strict = first.body.strict_signing_key_usage
    own = () if is_strict else (first.subject,)
    return ClaimsTrust(
        operator=first.subject,
        operator_keys=frozenset((*own, *first.body.signing_keys)),
        is_strict=is_strict,
        system_account=system_account,
    )
