"""The settings of exports and imports: subjects that accounts share.

    exports: [{ stream: "public.>" }, { service: "help", accounts: [B], response_type: stream }]
    imports: [{ stream: { account: A, subject: "public.>" }, prefix: "from_a" },
              { service: { account: A, subject: "help" }, to: "ask.a" }]

Source: nats-server's `parseExportStreamOrService`, `parseImportStreamOrService` (server/opts.go).
"""
# ruff: noqa: RUF009  each call declares a setting; nothing is shared between instances

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from natsd.config.sections import section_of
from natsd.config.settings import (
    NamedSections,
    OptionsError,
    Settings,
    flag,
    in_words,
    locate,
    optional,
    read_items,
    read_texts,
    section_field,
    text,
    unknown_field,
    whole,
)
from natsd.core.durations import DurationError, parse_duration
from natsd.core.quoting import quoted
from natsd.core.routing import is_valid

SAMPLING_BY_HEADERS: Final = 0
SAMPLING_DEFAULT: Final = 100
TOKENS_MAX: Final = 255
RESPONSE_TYPES: Final = {
    "single": "singleton",
    "singleton": "singleton",
    "stream": "stream",
    "chunk": "chunked",
    "chunked": "chunked",
}
EXPORT_ALIASES: Final = {
    "response": "response_type",
    "threshold": "response_threshold",
    "response_max_time": "response_threshold",
    "response_time": "response_threshold",
}


def _read_sampling(given: object) -> int:
    if isinstance(given, str) and given.strip().lower() == "headers":
        return SAMPLING_BY_HEADERS
    try:
        if isinstance(given, bool) or not isinstance(given, int | str):
            raise ValueError
        sampling = int(given.removesuffix("%")) if isinstance(given, str) else given
    except ValueError:
        raise OptionsError(f"must be per cent or headers, not {in_words(given)}") from None
    if not SAMPLING_BY_HEADERS <= sampling <= SAMPLING_DEFAULT:
        raise OptionsError("bad sampling percentage, should be 1-100")
    return sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyOptions(Settings):
    """Measurements of a service's latency, published as messages."""

    subject: str = text("", "subject of the measurements")
    sampling: int = section_field(
        SAMPLING_DEFAULT, _read_sampling, "per cent of the requests; 0: those with trace headers"
    )

    def check(self) -> None:
        """Check settings that depend on each other. Raises OptionsError."""
        if not self.subject:
            raise OptionsError("Latency subject required, but missing")


def _read_latency(given: object) -> LatencyOptions:
    if isinstance(given, str):
        return LatencyOptions(subject=given)
    if not isinstance(given, Mapping | LatencyOptions):
        raise OptionsError("Expected latency entry to be a map/struct or string")
    if isinstance(given, Mapping):
        for name, value in given.items():
            if str(name).lower() == "sampling" and str(value).removesuffix("%") == "0":
                raise OptionsError("bad sampling percentage, should be 1-100").at(name)
    return section_of(LatencyOptions, given)


def _read_response_type(given: object) -> str:
    if not isinstance(given, str):
        raise OptionsError(f"Expected response type to be string, not {in_words(given)}")
    if given.lower() not in RESPONSE_TYPES:
        raise OptionsError(f"Unknown response type: {quoted(given)}")
    return RESPONSE_TYPES[given.lower()]


def _read_threshold(given: object) -> timedelta:
    try:
        if not isinstance(given, str | timedelta):
            raise DurationError
        return parse_duration(given)
    except DurationError:
        found = quoted(given) if isinstance(given, str) else in_words(given)
        raise OptionsError(
            f"Expected response threshold to be a parseable time duration, got {found}"
        ) from None


def _read_revocations(given: object) -> NamedSections[int]:
    if not isinstance(given, Mapping):
        raise OptionsError("must be a mapping of public keys to Unix times")
    return NamedSections({str(key): int(time_s) for key, time_s in given.items()})


def _read_accounts(given: object) -> tuple[str, ...] | None:
    return None if given is None else read_texts(given) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedSubject(Settings):
    """What an export of a stream and one of a service have in common."""

    subject: str = text("", "subject, with wildcards for several")
    accounts: tuple[str, ...] | None = section_field(
        None, _read_accounts, "accounts that may import; not given: all"
    )
    account_token_position: int = whole(
        0, 0, TOKENS_MAX, "token of the subject that must be the importing account; 0: none"
    )
    token_required: bool = flag(False, "importing accounts need an activation token (JWT)")
    revocations: Mapping[str, int] = section_field(
        NamedSections[int](), _read_revocations, "Unix times before which accounts' tokens are void"
    )

    def check(self) -> None:
        """Check settings that depend on each other. Raises OptionsError."""
        _check_subject(self.subject)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamExport(ExportedSubject):
    """Subjects that other accounts may subscribe to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceExport(ExportedSubject):
    """A subject on which other accounts may send requests."""

    response_type: str = section_field(
        "singleton", _read_response_type, "how a request is answered"
    )
    response_threshold: timedelta | None = optional(
        _read_threshold, "how long responses are waited for; not given: 2m"
    )
    latency: LatencyOptions | None = optional(_read_latency, "measurements of latency")
    allow_trace: bool = flag(False, "traces of messages continue in this account")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSubject(Settings):
    """What an import of a stream and one of a service have in common."""

    account: str = text("", "account that exports the subject")
    subject: str = text("", "exported subject, or a part of it")
    token: str = text("", "activation token (JWT); empty: none")

    def check(self) -> None:
        """Check settings that depend on each other. Raises OptionsError."""
        if not self.account or not self.subject:
            raise OptionsError("Expect an account name and a subject")
        _check_subject(self.subject)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamImport(ImportedSubject):
    """Subjects of another account that this account may subscribe to."""

    prefix: str = text("", "what precedes the subjects in this account")
    to: str = text("", "subjects in this account; in place of a prefix")
    allow_trace: bool = flag(False, "traces of messages continue in this account")

    def check(self) -> None:
        """Check settings that depend on each other. Raises OptionsError."""
        ImportedSubject.check(self)
        if self.prefix and self.to:
            raise OptionsError(
                "Stream import can not have a 'prefix' and a 'to' property", setting="to"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceImport(ImportedSubject):
    """A service of another account that this account may send requests to."""

    to: str = text("", "subject in this account; empty: the exported one")
    share: bool = flag(False, "tell the service about the client that sends the request")


def _check_subject(subject: str) -> None:
    if not is_valid(subject):
        raise OptionsError(f'invalid subject "{subject}"')


def _kind_of(given: Mapping[Any, Any], what: str) -> tuple[str, Any, dict[Any, Any]]:
    """Return `stream` or `service`, its value, and the other settings. Raises OptionsError."""
    kinds = [name for name in given if str(name).lower() in ("stream", "service")]
    if not kinds:
        raise OptionsError(f"{what} is neither a stream nor a service")
    if len(kinds) > 1:
        first, second = (str(kind).lower() for kind in kinds[:2])
        subject = given[kinds[1]]
        shown_subject = f" {quoted(subject)}" if isinstance(subject, str) else ""
        error = OptionsError(f"Detected {second}{shown_subject} but already saw a {first}")
        raise error.at(kinds[1])
    rest = {name: value for name, value in given.items() if name not in kinds}
    return str(kinds[0]).lower(), given[kinds[0]], rest


def _read_export(given: object) -> StreamExport | ServiceExport:
    if isinstance(given, StreamExport | ServiceExport):
        return given
    if not isinstance(given, Mapping):
        raise OptionsError("Export Items should be a map with type entry")
    kind, subject, rest = _kind_of(given, "an export")
    if not isinstance(subject, str):
        raise OptionsError(f"Expected {kind} name to be string")
    if kind == "service":
        return section_of(ServiceExport, {**rest, "subject": subject}, aliases=EXPORT_ALIASES)
    for name in rest:
        lower = EXPORT_ALIASES.get(str(name).lower(), str(name).lower())
        if lower in ("response_type", "response_threshold", "latency", "allow_trace"):
            reason = lower.partition("_")[0] if lower != "allow_trace" else lower
            raise OptionsError(f"Detected {reason} directive on non-service").at(name)
    return section_of(StreamExport, {**rest, "subject": subject})


def _read_import(given: object) -> StreamImport | ServiceImport:
    if isinstance(given, StreamImport | ServiceImport):
        return given
    if not isinstance(given, Mapping):
        raise OptionsError("Import Items should be a map with type entry")
    kind, source, rest = _kind_of(given, "an import")
    if not isinstance(source, Mapping):
        raise OptionsError(f"{kind.capitalize()} entry should be an account map")
    for name in source:
        if str(name).lower() not in ("account", "subject"):
            raise unknown_field(str(name), ["account", "subject"]).at(name)
    for name in rest:
        if str(name).lower() == "allow_trace" and kind == "service":
            raise OptionsError("Detected allow_trace directive on a non-stream").at(name)
    ignored = "share" if kind == "stream" else "prefix"
    rest = {name: value for name, value in rest.items() if str(name).lower() != ignored}
    if kind == "stream":
        return section_of(StreamImport, {**rest, **source})
    return section_of(ServiceImport, {**rest, **source})


def read_exports(given: object) -> tuple[StreamExport | ServiceExport, ...]:
    """Return exports from a list of mappings. Raises OptionsError."""
    if not isinstance(given, list | tuple):
        raise OptionsError("Exports should be an array")
    return read_items(given, _read_export, "exports")


def read_imports(given: object) -> tuple[StreamImport | ServiceImport, ...]:
    """Return imports from a list of mappings. Raises OptionsError."""
    if not isinstance(given, list | tuple):
        raise OptionsError("Imports should be an array")
    found = read_items(given, _read_import, "imports")
    for each, other in _same_services(found):
        error = OptionsError(
            f'Duplicate service import subject "{other.to or other.subject}", previously used in '
            f'import for account "{each.account}", subject "{each.subject}"',
            path=(next(at for at, one in enumerate(found) if one is other),),
        )
        locate(error, given)
        raise error
    return found


def _same_services(
    found: tuple[StreamImport | ServiceImport, ...],
) -> Iterator[tuple[ServiceImport, ServiceImport]]:
    """Yield pairs of imports of one account's services under one subject."""
    seen: dict[tuple[str, str], ServiceImport] = {}
    for each in found:
        if isinstance(each, ServiceImport):
            name = each.account, each.to or each.subject
            if name in seen:
                yield seen[name], each
            seen[name] = each
