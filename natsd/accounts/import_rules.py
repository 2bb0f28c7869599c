"""Which imports of a set of accounts are in force, decided from their settings alone.

- An import needs an account that exports the subject, or a pattern that includes it, and the
  export's permission: the export is public, names the importing account, has the account's name at
  a place of the subject, or requires an activation token, which the import has.
- If several exports include the subject, the narrowest one decides. (nats-server takes any.)
- Imports that could send a message in a circle are refused: each is checked against those that are
  in force already.
- `sharing_errors` checks all accounts of a configuration, before anything of it is applied.

Source: nats-server's `parseAccounts` (server/opts.go), `checkAuth`, `checkServiceImportsForCycles`
and `checkStreamImportsForCycles` (server/accounts.go), error texts included.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from natsd.accounts.import_patterns import ImportPatterns
from natsd.accounts.mappings import check_mappings
from natsd.config.account_options import AccountOptions
from natsd.config.settings import OptionsError
from natsd.config.sharing_options import ServiceExport, ServiceImport, StreamExport, StreamImport
from natsd.core.quoting import quoted
from natsd.core.routing import collide, is_literal, is_subset, is_valid, is_valid_publish
from natsd.core.subject_mapping import InvalidMapping

Import = StreamImport | ServiceImport
Export = StreamExport | ServiceExport

CYCLE_DEPTH_MAX: Final = 1024


class ImportRefused(Exception):
    """An import is not in force; the text is nats-server's reason."""


class Activation(NamedTuple):
    """A valid activation token."""

    expires_ns: int = 0  # Unix time; 0: never


CheckActivation = Callable[[str, str, Import, Export], Activation | None]
"""Called with exporter, importer, import and export; returns None if the token is not valid."""


def no_activation(
    _exporter: str, _importer: str, _given: Import, _export: Export
) -> Activation | None:
    """Accept no token."""
    return None


class Permit(NamedTuple):
    """An import that is in force."""

    given: Import
    export: Export
    patterns: ImportPatterns
    expires_ns: int = 0  # Unix time at which the activation token expires; 0: never

    @property
    def exported(self) -> str:
        """The subject in the exporting account."""
        return self.patterns.exported

    @property
    def local(self) -> str:
        """The subject in the importing account, as a pattern."""
        return self.patterns.local


class ImportRules:
    """The settings of accounts, and their imports that are in force."""

    def __init__(self, check_activation: CheckActivation = no_activation) -> None:
        self.options: dict[str, AccountOptions] = {}
        self.permits: dict[str, list[Permit]] = {}
        self._check_activation = check_activation

    def judge(self, importer: str) -> Iterator[tuple[Import, ImportRefused]]:
        """Decide over all imports of an account; yield those that are refused, with the reason.

        Its streams are decided before its services. They are not in force until this is finished
        for them.
        """
        self.permits[importer] = []
        given = self.options[importer].imports if importer in self.options else ()
        for kind in (StreamImport, ServiceImport):
            for each in given:
                if isinstance(each, kind):
                    try:
                        self.permits[importer].append(self.permit(importer, each))
                    except ImportRefused as refused:
                        yield each, refused

    def permit(self, importer: str, given: Import) -> Permit:
        """Return the permission for an import. Raises ImportRefused."""
        exporter = self.options.get(given.account)
        what = "stream" if isinstance(given, StreamImport) else "service"
        if exporter is None:
            raise ImportRefused(f'"{given.account}" account not defined for {what} import')
        export = find_export(exporter, given)
        activation = None if export is None else self._authorize(importer, given, export)
        if export is None or activation is None:
            raise ImportRefused(f"{what} import not authorized")
        patterns = patterns_of(given)
        if isinstance(given, StreamImport):
            if any(_same_stream(each.given, given) for each in self.permits[importer]):
                raise ImportRefused("stream import already exists")
            for subject in (given_local(given), given.subject):
                self._check_cycle(importer, given, subject)
        else:
            self._check_service(importer, given, patterns)
        return Permit(given, export, patterns, activation.expires_ns)

    def _authorize(self, importer: str, given: Import, export: Export) -> Activation | None:
        """Return the right to an import; None: the export does not give it."""
        position = export.account_token_position
        if position:
            tokens = given.subject.split(".")
            is_own = position <= len(tokens) and tokens[position - 1] == importer
            return Activation() if is_own else None
        if export.token_required:
            return self._check_activation(given.account, importer, given, export)
        is_named = export.accounts is None or importer in export.accounts
        return Activation() if is_named else None

    def _check_service(self, importer: str, given: ServiceImport, patterns: ImportPatterns) -> None:
        """Check a service import against those in force. Raises ImportRefused."""
        for each in self.permits[importer]:
            if isinstance(each.given, ServiceImport) and (each.given.account, each.local) == (
                given.account,
                patterns.local,
            ):
                raise ImportRefused(
                    f'duplicate service import subject "{patterns.local}", previously used in '
                    f'import for account "{given.account}", subject "{each.exported}"'
                )
        self._check_cycle(importer, given, patterns.local)

    def _check_cycle(self, importer: str, given: Import, subject: str) -> None:
        """Check that nothing leads from the exporter back to the importer. Raises ImportRefused.

        An account that is reached twice counts as a circle, too.
        """
        follow = self._streams_behind if isinstance(given, StreamImport) else self._services_behind
        visited = {importer}
        path = [(given.account, follow(given.account, subject))]
        while path:
            account, behind = path[-1]
            if len(visited) >= CYCLE_DEPTH_MAX:
                raise ImportRefused("search cycle depth exhausted")
            found = next(behind, None)
            if found is None:
                path.pop()
                continue
            if found[0] in visited:
                raise ImportRefused("import forms a cycle")
            visited.add(account)
            path.append((found[0], follow(*found)))

    def _services_behind(self, account: str, subject: str) -> Iterator[tuple[str, str]]:
        """Yield the accounts and subjects to which requests may go on from an account."""
        for each in self.permits.get(account, ()):
            if isinstance(each.given, ServiceImport) and collide(subject, each.exported):
                narrower = each.local if is_subset(each.local, subject) else subject
                yield each.given.account, narrower

    def _streams_behind(self, account: str, subject: str) -> Iterator[tuple[str, str]]:
        """Yield the accounts and subjects from which an account gets what it exports."""
        exports = self.options[account].exports if account in self.options else ()
        if not any(
            isinstance(each, StreamExport) and is_subset(subject, each.subject) for each in exports
        ):
            return
        for each in self.permits.get(account, ()):
            if isinstance(each.given, StreamImport) and collide(subject, each.local):
                narrower = each.local if is_subset(each.local, subject) else subject
                yield each.given.account, narrower


def given_local(given: Import) -> str:
    """Return the subjects that an import has in the importing account, as they are configured."""
    if isinstance(given, StreamImport) and given.prefix:
        return given.prefix.removesuffix(".") + "." + given.subject
    return given.to or given.subject


def patterns_of(given: Import) -> ImportPatterns:
    """Return the subjects of an import in both accounts. Raises ImportRefused."""
    local = given_local(given)
    if isinstance(given, StreamImport) and given.prefix and not is_literal(given.prefix):
        raise ImportRefused("stream import prefix can not contain wildcard tokens")
    if not is_valid(local):
        raise ImportRefused("invalid subject")
    try:
        return ImportPatterns.of(given.subject, local)
    except InvalidMapping as error:
        kind = "stream" if isinstance(given, StreamImport) else "service"
        ends = (given.subject, local) if kind == "stream" else (local, given.subject)
        raise ImportRefused(
            f'failed to create mapping transform for {kind} import subject from "{ends[0]}" '
            f'to "{ends[1]}": {error}'
        ) from None


def find_export(exporter: AccountOptions, given: Import) -> Export | None:
    """Return the export that decides over an import; None: the subject is not exported."""
    kind = StreamExport if isinstance(given, StreamImport) else ServiceExport
    found: Export | None = None
    for each in exporter.exports:
        if isinstance(each, kind) and is_subset(given.subject, each.subject):
            if each.subject == given.subject:
                return each
            if found is None or is_subset(each.subject, found.subject):
                found = each
    return found


def _same_stream(one: Import, other: Import) -> bool:
    return (
        isinstance(one, StreamImport)
        and isinstance(other, StreamImport)
        and (one.account, one.subject) == (other.account, other.subject)
    )


def sharing_errors(
    accounts: Mapping[str, AccountOptions],
    *,
    check_activation: CheckActivation = no_activation,
    has_system_account: bool = True,
    cluster: str = "",
) -> list[OptionsError]:
    """Return what is wrong with the exports, imports and mappings of all accounts together."""
    rules = ImportRules(check_activation)
    rules.options = dict(accounts)
    errors = []
    for name, options in accounts.items():
        for source, text in check_mappings(options.mappings, cluster):
            errors.append(OptionsError(text, path=("accounts", name, "mappings", source)))
        for index, export in enumerate(options.exports):
            for text in _check_export(accounts, options, export, has_system_account):
                errors.append(OptionsError(text, path=("accounts", name, "exports", index)))
    if errors:
        return errors
    for name, options in accounts.items():
        for given, refused in rules.judge(name):
            index = next(at for at, each in enumerate(options.imports) if each is given)
            text = _import_error(given, str(refused))
            errors.append(OptionsError(text, path=("accounts", name, "imports", index)))
    return errors


def _import_error(given: Import, reason: str) -> str:
    if "account not defined" in reason:
        return reason
    what = "stream" if isinstance(given, StreamImport) else "service"
    return f"Error adding {what} import {quoted(given.subject)}: {reason}"


def _check_export(
    accounts: Mapping[str, AccountOptions],
    exporter: AccountOptions,
    export: Export,
    has_system_account: bool,
) -> Iterator[str]:
    """Yield what is wrong with one export."""
    what = "stream" if isinstance(export, StreamExport) else "service"
    for name in export.accounts or ():
        if name not in accounts:
            yield f'"{name}" account not defined for {what} export'
    position, tokens = export.account_token_position, export.subject.split(".")
    if position and (len(tokens) < position or tokens[position - 1] != "*"):
        yield f"Error adding {what} export {quoted(export.subject)}: invalid subject"
    if not isinstance(export, ServiceExport) or export.latency is None:
        return
    subject = export.latency.subject
    where = f"Error adding service latency sampling for {quoted(export.subject)}"
    if not has_system_account:
        yield f"{where}: system account not setup"
        return
    services = [each.subject for each in exporter.exports if isinstance(each, ServiceExport)]
    if not is_valid_publish(subject) or any(is_subset(subject, each) for each in services):
        yield f"{where} on subject {quoted(subject)}: invalid publish subject"
    elif export.response_type != "singleton":
        yield f"{where} on subject {quoted(subject)}: bad service response type"
