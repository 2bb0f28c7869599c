"""Activation tokens: an exporter's permission, as a JWT, to import one of its exports.

Source: nats-server's `checkActivation`, `isIssuerClaimTrusted` (server/accounts.go).
"""

from collections.abc import Mapping

from natsd.auth.jwt.activation import ActivationClaims
from natsd.auth.jwt.claims import is_revoked
from natsd.auth.jwt.decode import decode_as
from natsd.auth.jwt.subjects import is_contained
from natsd.auth.jwt.token import BadToken
from natsd.auth.operator.accounts import ClaimedAccount

SECOND_NS = 1_000_000_000


def check_activation(
    token: str,
    exporter: ClaimedAccount,
    importer: str,
    subject: str,
    kind: str,
    revocations: Mapping[str, int],
    now_s: float,
) -> int | None:
    """Return when a right to import ends, in Unix nanoseconds; 0: never. None: there is none.

    `subject` is the exporter's subject that is imported, and `kind` is "stream" or "service".
    `revocations` are those of the export.
    """
    try:
        claims = decode_as(ActivationClaims, token)
    except BadToken:
        return None
    body = claims.body
    is_signed = (
        claims.issuer == exporter.name
        if not body.issuer_account
        else body.issuer_account == exporter.name and claims.issuer in exporter.signers
    )
    is_right = (
        is_signed
        and claims.subject == importer
        and body.kind == kind
        and is_contained(subject, body.subject)
        and not claims.issues(now_s).blocks(by_time=True)
        and not is_revoked(dict(revocations), claims.subject, claims.issued_at)
    )
    return claims.expires * SECOND_NS if is_right else None
