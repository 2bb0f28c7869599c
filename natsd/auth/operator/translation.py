"""From the claims of an account to its settings, so that everything behind knows settings only.

- What the settings refuse, such as a trace destination with wildcards, is left out and logged, as
  in nats-server: the rest of the account works.

Source: nats-server's `updateAccountClaimsWithRefresh`, `buildPermissionsFromJwt`
(server/accounts.go).
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Final, TypeVar

from natsd.auth.jwt.account import AccountClaims, LimitsClaim, MappingClaim, StorageClaim
from natsd.auth.jwt.claims import PermissionsClaim, RulesClaim
from natsd.auth.jwt.sharing import ExportClaim, ImportClaim
from natsd.config import OptionsError
from natsd.config.account_jetstream import TIERS, AccountJetStream, read_account_jetstream
from natsd.config.account_options import AccountLimits, AccountOptions
from natsd.config.auth_options import PermissionsOptions, ResponsesOptions, SubjectRules
from natsd.config.mapping_options import MappingDestination
from natsd.config.settings import NamedSections
from natsd.config.sharing_options import (
    LatencyOptions,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
)
from natsd.config.trace_options import MsgTraceOptions

INT32_MAX: Final = 2**31 - 1
NANOSECONDS_MAX: Final = 10**18
_DEFAULT_RESPONSES: Final = ResponsesOptions()

_logger = logging.getLogger("natsd.auth")

Given = TypeVar("Given")
Made = TypeVar("Made")


def account_options(claims: AccountClaims) -> AccountOptions:
    """Return the settings of an account."""
    body, name = claims.body, claims.subject
    traces = list(_made(name, "trace", _trace, [claims]))
    return AccountOptions(
        nkey=name,
        default_permissions=permissions_options(body.default_permissions),
        imports=tuple(_made(name, "import", _import, body.imports)),
        exports=tuple(_made(name, "export", _export, body.exports)),
        mappings=NamedSections(dict(_made(name, "mapping", _mapping, body.mappings.items()))),
        jetstream=_jetstream(body.limits, body.cluster_traffic),
        limits=AccountLimits(
            max_connections=_int32(body.limits.conn),
            max_subscriptions=_int32(body.limits.subs),
            max_payload=_int32(body.limits.payload),
            max_leafnodes=_int32(body.limits.leaf),
        ),
        msg_trace=traces[0] if traces else MsgTraceOptions(),
    )


def permissions_options(claim: PermissionsClaim) -> PermissionsOptions | None:
    """Return permissions; None: nothing is said."""
    if claim.is_empty:
        return None
    responses = None
    if claim.resp is not None:
        responses = ResponsesOptions(
            max_msgs=claim.resp.max or _DEFAULT_RESPONSES.max_msgs,
            expires=_nanoseconds(claim.resp.ttl) or _DEFAULT_RESPONSES.expires,
        )
    return PermissionsOptions(
        publish=_rules(claim.pub), subscribe=_rules(claim.sub), allow_responses=responses
    )


def _rules(claim: RulesClaim) -> SubjectRules:
    return SubjectRules(allow=claim.allow or None, deny=claim.deny)


def _made(
    account: str, what: str, make: Callable[[Given], Made], given: Iterable[Given]
) -> Iterator[Made]:
    """Yield what can be made, and log what cannot."""
    for each in given:
        try:
            yield make(each)
        except OptionsError as error:
            _logger.error("Account %s: an %s is left out: %s", account, what, error)


def _export(claim: ExportClaim) -> StreamExport | ServiceExport:
    if claim.type == "stream":
        return StreamExport(
            subject=claim.subject,
            account_token_position=claim.account_token_position,
            token_required=claim.token_req,
            revocations=NamedSections(claim.revocations),
        )
    latency = claim.service_latency
    threshold = claim.response_threshold
    return ServiceExport(
        subject=claim.subject,
        account_token_position=claim.account_token_position,
        token_required=claim.token_req,
        revocations=NamedSections(claim.revocations),
        response_type=claim.response_type.lower() or "singleton",
        response_threshold=_nanoseconds(threshold) if threshold else None,
        latency=None
        if latency is None
        else LatencyOptions(subject=latency.results, sampling=latency.percentage),
        allow_trace=claim.allow_trace,
    )


def _import(claim: ImportClaim) -> StreamImport | ServiceImport:
    """Return an import; for `to`, which is deprecated, the two kinds differ.

    In a service, `to` is the exporter's subject; in a stream, it is a prefix.
    """
    local = claim.local_subject
    if claim.type == "stream":
        return StreamImport(
            account=claim.account,
            subject=claim.subject,
            to=local,
            prefix="" if local else claim.to,
            allow_trace=claim.allow_trace,
            token=claim.token,
        )
    is_old = bool(claim.to) and not local
    return ServiceImport(
        account=claim.account,
        subject=claim.to if is_old else claim.subject,
        to=claim.subject if is_old else local,
        share=claim.share,
        token=claim.token,
    )


def _mapping(
    given: tuple[str, tuple[MappingClaim, ...]],
) -> tuple[str, tuple[MappingDestination, ...]]:
    subject, destinations = given
    return subject, tuple(
        MappingDestination(
            destination=each.subject, weight=each.weight or 100, cluster=each.cluster
        )
        for each in destinations
    )


def _trace(claims: AccountClaims) -> MsgTraceOptions:
    trace = claims.body.trace
    if trace is None:
        return MsgTraceOptions()
    sampling = trace.sampling if 0 < trace.sampling <= 100 else 100
    return MsgTraceOptions(dest=trace.dest, sampling=sampling)


def _jetstream(limits: LimitsClaim, cluster_traffic: str) -> AccountJetStream:
    """Return the limits of streams; tiers take the place of those for all streams together."""
    if not limits.has_jetstream:
        return AccountJetStream(enabled=False)
    settings: dict[str, object] = {
        "cluster_traffic": cluster_traffic if cluster_traffic in {"system", "owner"} else "system"
    }
    if limits.mem_storage or limits.disk_storage:
        return read_account_jetstream({**settings, **_storage(limits)})
    tiers = {name: _storage(tier) for name, tier in limits.tiered_limits.items() if name in TIERS}
    return read_account_jetstream({**settings, "tiers": tiers})


def _storage(claim: StorageClaim) -> dict[str, object]:
    return {
        "max_memory": max(claim.mem_storage, -1),
        "max_store": max(claim.disk_storage, -1),
        "max_streams": _int32(claim.streams),
        "max_consumers": _int32(claim.consumer),
        "max_ack_pending": _int32(claim.max_ack_pending) or -1,
        "memory_max_stream_bytes": max(claim.mem_max_stream_bytes, -1) or -1,
        "disk_max_stream_bytes": max(claim.disk_max_stream_bytes, -1) or -1,
        "max_bytes_required": claim.max_bytes_required,
    }


def _int32(value: int) -> int:
    """Return a limit within its range; below 0: none."""
    return max(-1, min(value, INT32_MAX))


def _nanoseconds(value: int) -> timedelta:
    value = max(-NANOSECONDS_MAX, min(value, NANOSECONDS_MAX))
    return timedelta(microseconds=value / 1000)
