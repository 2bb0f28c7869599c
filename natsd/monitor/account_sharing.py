"""The exports, imports and subject mappings of an account, as `/accountz` shows them.

Sources: nats-server's `accountInfo` (server/monitor.go) and the JSON of `jwt.Export`, `jwt.Import`
and `MapDest`.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from natsd.accounts.account import AccountDescription
from natsd.accounts.account_links import AccountLinks
from natsd.accounts.import_rules import Permit
from natsd.config.mapping_options import MappingDestination
from natsd.config.sharing_options import ServiceExport, ServiceImport, StreamExport, StreamImport
from natsd.monitor.values import timestamp

SECOND_NS: Final = 1_000_000_000
ALL: Final = 100
RESPONSE_TYPES: Final = {"singleton": "Singleton", "stream": "Streamed", "chunked": "Chunked"}

Row = dict[str, Any]


def export_rows(exports: Iterable[StreamExport | ServiceExport]) -> Iterator[Row]:
    """Yield the exported services, then the exported streams."""
    rows = list(exports)
    for given in rows:
        if isinstance(given, ServiceExport):
            yield _export(given, "service")
    for given in rows:
        if isinstance(given, StreamExport):
            yield _export(given, "stream")


def _export(given: StreamExport | ServiceExport, kind: str) -> Row:
    row: Row = {"subject": given.subject, "type": kind}
    if given.token_required:
        row["token_req"] = True
    if isinstance(given, ServiceExport):
        row["response_type"] = RESPONSE_TYPES[given.response_type]
        if given.response_threshold:
            row["response_threshold"] = round(given.response_threshold / _NANOSECOND)
        if given.latency is not None:
            sampling = given.latency.sampling or "headers"
            row["service_latency"] = {"sampling": sampling, "results": given.latency.subject}
    if given.account_token_position:
        row["account_token_position"] = given.account_token_position
    if given.accounts:
        row["approved_accounts"] = given.accounts
    if given.revocations:
        row["revoked_activations"] = revoked(given.revocations)
    return row


_NANOSECOND: Final = timedelta(microseconds=1) / 1000


def revoked(times: Mapping[str, int]) -> dict[str, str]:
    """Return revocations with their times as text; they are given in Unix seconds."""
    return {key: timestamp(seconds * SECOND_NS) for key, seconds in times.items()}


def import_rows(
    imports: Iterable[StreamImport | ServiceImport], permits: Iterable[Permit]
) -> Iterator[Row]:
    """Yield the imported streams, then the imported services; those of `permits` are in force."""
    rows = list(imports)
    local = {id(permit.given): permit.local for permit in permits}
    for given in rows:
        if isinstance(given, StreamImport):
            configured = given.to or f"{given.prefix}.{given.subject}".lstrip(".")
            yield {
                "subject": given.subject,
                "account": given.account,
                "local_subject": local.get(id(given), configured),
                "type": "stream",
                **_import_state(is_invalid=id(given) not in local, share=False),
            }
    for given in rows:
        if isinstance(given, ServiceImport):
            yield service_import_row(
                given.subject,
                given.account,
                local.get(id(given), given.to or given.subject),
                is_invalid=id(given) not in local,
                share=given.share,
            )


def service_import_row(
    subject: str, account: str, local: str, *, share: bool, is_invalid: bool = False
) -> Row:
    """Return an imported service, whose requests are sent on `local`."""
    return {
        "subject": subject,
        "account": account,
        "to": local,
        "local_subject": local,
        "type": "service",
        **_import_state(is_invalid=is_invalid, share=share),
    }


def _import_state(*, is_invalid: bool, share: bool) -> Row:
    return {"invalid": is_invalid, "share": share, "tracking": False}


def mapping_rows(
    mappings: Mapping[str, tuple[MappingDestination, ...]],
) -> dict[str, list[Row]]:
    """Return the destinations of each source with their weights.

    The share of messages that keep their subject is the first destination.
    """
    return {source: _destinations(source, given) for source, given in mappings.items()}


def _destinations(source: str, given: Iterable[MappingDestination]) -> list[Row]:
    rows: list[Row] = []
    used: dict[str, int] = {}
    for each in given:
        row: Row = {"subject": each.destination, "weight": each.weight}
        if each.cluster:
            row["cluster"] = each.cluster
        rows.append(row)
        used[each.cluster] = used.get(each.cluster, 0) + each.weight
    if not any(row["subject"] == source for row in rows) and 0 < used.get("", 0) < ALL:
        rows.insert(0, {"subject": source, "weight": ALL - used[""]})
    return rows


def shares(links: AccountLinks | None, description: AccountDescription) -> Row:
    """Return the lists `mappings`, `exports` and `imports` of an account's own settings.

    `links` are the links between accounts; None: no account shares anything.
    """
    options, name = description.options, description.name
    permits: list[Permit] = []
    if links is not None:
        options, permits = links.options(name), links.permits(name)
    if options is None:
        return {"mappings": {}, "exports": [], "imports": []}
    return {
        "mappings": mapping_rows(options.mappings),
        "exports": list(export_rows(options.exports)),
        "imports": list(import_rows(options.imports, permits)),
    }
