"""The exports and imports in the claims of an account.

Source: nats-io/jwt v2 (exports.go, imports.go).
"""

from typing import Any, Final

import msgspec

from natsd.auth.jwt.activation import ActivationClaims
from natsd.auth.jwt.claims import Int64, check_info
from natsd.auth.jwt.issues import Issues
from natsd.auth.jwt.subjects import (
    check_renaming,
    check_subject,
    has_wildcards,
    is_contained,
    overlaps,
    without_references,
)

RESPONSE_TYPES: Final = ("", "Singleton", "Stream", "Chunked")
_KINDS: Final = ("stream", "service")


class LatencyClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Where the latency of a service is published to, and for how many of 100 requests."""

    results: str = ""
    sampling: Any = 0  # 1 to 100; 0 or "headers": for requests with headers of a trace

    @property
    def percentage(self) -> int:
        """The number of 100 requests that are measured; 0: those with headers of a trace."""
        return self.sampling if isinstance(self.sampling, int) else 0

    def check(self, issues: Issues) -> None:
        """Check the rate and the subject."""
        given = self.sampling
        is_headers = isinstance(given, str) and given.lower() == "headers"
        if not is_headers and not (type(given) is int and 0 <= given <= 100):
            issues.errors.append("sampling percentage needs to be between 1-100")
        check_subject(self.results, issues)
        if has_wildcards(self.results):
            issues.errors.append("results subject can not contain wildcards")


class ExportClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A stream or a service that other accounts may import."""

    name: str = ""
    subject: str = ""
    type: str = ""
    token_req: bool = False  # importers need an activation
    revocations: dict[str, int] = {}
    response_type: str = ""
    response_threshold: Int64 = 0  # nanoseconds
    service_latency: LatencyClaim | None = None
    account_token_position: int = 0
    allow_trace: bool = False
    description: str = ""
    info_url: str = ""

    def check(self, issues: Issues) -> None:
        """Check everything but the relation to other exports."""
        if self.type not in _KINDS:
            issues.errors.append(f'invalid export type: "{self.type or "unknown"}"')
        is_service = self.type == "service"
        if is_service and self.response_type not in RESPONSE_TYPES:
            issues.errors.append(f'invalid response type for service: "{self.response_type}"')
        if self.type == "stream" and self.response_type:
            issues.errors.append(f'invalid response type for stream: "{self.response_type}"')
        if self.type == "stream" and self.allow_trace:
            issues.errors.append("AllowTrace only valid for service export")
        if self.service_latency is not None:
            if not is_service:
                issues.errors.append("latency tracking only permitted for services")
            self.service_latency.check(issues)
        if self.response_threshold < 0:
            issues.errors.append("negative response threshold is invalid")
        if self.response_threshold > 0 and not is_service:
            issues.errors.append("response threshold only valid for services")
        check_subject(self.subject, issues)
        self._check_token_position(issues)
        check_info(self.description, self.info_url, issues)

    def _check_token_position(self, issues: Issues) -> None:
        """Check that the token that names the importer is a `*`."""
        position, tokens = self.account_token_position, self.subject.split(".")
        if position == 0:
            return
        if not has_wildcards(self.subject):
            issues.errors.append(
                f"Account Token Position can only be used with wildcard subjects: {self.subject}"
            )
        elif not 0 < position <= len(tokens):
            issues.errors.append(
                f"Account Token Position {position} exceeds length of subject '{self.subject}'"
            )
        elif tokens[position - 1] != "*":
            issues.errors.append(
                f"Account Token Position {position} matches '{tokens[position - 1]}'"
                f" but must match a * in: {self.subject}"
            )


class ImportClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A stream or a service of another account."""

    name: str = ""
    subject: str = ""
    account: str = ""
    token: str = ""  # an activation; empty: none
    to: str = ""  # deprecated; see `ImportClaim.local_subject`
    local_subject: str = ""
    type: str = ""
    share: bool = False
    allow_trace: bool = False

    def check(self, account: str, activation: ActivationClaims | None, issues: Issues) -> None:
        """Check the import of an account; `activation` is what its token says, None: no token."""
        if self.type not in _KINDS:
            issues.errors.append(f'invalid import type: "{self.type or "unknown"}"')
        if self.type == "service" and self.allow_trace:
            issues.errors.append("AllowTrace only valid for stream import")
        if not self.account:
            issues.errors.append("account to import from is not specified")
        if self.to:
            issues.warnings.append("the field to has been deprecated (use LocalSubject instead)")
        check_subject(self.subject, issues)
        if self.local_subject:
            check_renaming(self.local_subject, self.subject, issues)
            if self.to:
                issues.errors.append("Local Subject replaces To")
        if self.share and self.type != "service":
            issues.errors.append(
                "sharing information (for latency tracking) is only valid for services: "
                f'"{self.subject}"'
            )
        if activation is not None:
            self._check_activation(account, activation, issues)

    def _check_activation(self, account: str, activation: ActivationClaims, issues: Issues) -> None:
        body = activation.body
        if self.account not in {activation.issuer, body.issuer_account}:
            issues.errors.append(
                f'activation token doesn\'t match account for import "{self.subject}"'
            )
        if activation.subject != account:
            issues.errors.append(
                f'activation token doesn\'t match account it is being included in, "{self.subject}"'
            )
        if body.kind != self.type:
            issues.errors.append(
                f"mismatch between token import type {body.kind or 'unknown'}"
                f" and type of import {self.type}"
            )
        activation.check(issues)
        subject = self.to if self.type == "service" and self.to else self.subject
        if not is_contained(subject, body.subject):
            issues.errors.append(
                f'activation token import subject "{body.subject}"'
                f' doesn\'t match import "{self.subject}"'
            )


def check_exports(exports: tuple[ExportClaim, ...], issues: Issues) -> None:
    """Check exports, of which none may contain another one of its kind."""
    for export in exports:
        export.check(issues)
    for kind in _KINDS:
        subjects = [export.subject for export in exports if export.type == kind]
        issues.errors += [
            f'{kind} export subject "{container}" already exports "{contained}"'
            for container, contained in overlaps(subjects)
        ]


def check_service_imports(imports: tuple[ImportClaim, ...], issues: Issues) -> None:
    """Check that the services of one account are imported under subjects that do not overlap."""
    of_account: dict[str, list[str]] = {}
    for each in imports:
        if each.type == "service":
            local = each.to or without_references(each.local_subject) or each.subject
            of_account.setdefault(each.account, []).append(local)
    for account, subjects in of_account.items():
        issues.errors += [
            f'overlapping subject namespace for "{contained}" and "{container}"'
            f' in same account "{account}"'
            for container, contained in overlaps(subjects)
        ]
