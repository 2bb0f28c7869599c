"""The report of `natsd config check`: what a configuration file would do, in plain words."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from natsd.cli.config_diff import shown
from natsd.clients.listener import host_port
from natsd.config import Options
from natsd.config.account_jetstream import AccountJetStream
from natsd.config.account_names import GLOBAL, SYSTEM
from natsd.config.account_options import AccountOptions
from natsd.config.auth_options import PermissionsOptions, UserOptions
from natsd.config.loaded import LoadedConfig
from natsd.config.secret_texts import REDACTED, without_secrets
from natsd.config.settings import settings_of
from natsd.config.sharing_options import ServiceExport, ServiceImport, StreamExport, StreamImport
from natsd.config.tls_options import TlsOptions
from natsd.config.user_checks import all_users
from natsd.core.durations import format_duration

EXPIRES_SOON: Final = timedelta(days=30)
USERS_SHOWN_MAX: Final = 20
EXPLAINED: Final = (
    *("host", "port", "http_host", "http_port", "https_port", "http_user", "http_password"),
    *("authorization", "accounts", "no_auth_user"),
    *("tls", "allow_non_tls", "jetstream", "store_dir", "operators", "trusted_keys", "resolver"),
    *("resolver_preload", "system_account", "no_system_account", "proxy_protocol", "cluster"),
)
"""Settings that have lines of their own; the others are listed if they are not the defaults."""


def report(loaded: LoadedConfig) -> Iterator[str]:
    """Yield the lines of the report."""
    options = loaded.options
    yield f"{loaded.path} is valid ({loaded.digest})"
    if len(loaded.files) > 1:
        yield f"It includes {', '.join(map(str, loaded.files[1:]))}."
    yield ""
    yield from _listeners(options)
    yield from _logins(options)
    yield from _accounts(options)
    yield from _jetstream(options)
    yield from _others(options)
    warnings = [*loaded.warnings, *loaded.notes, *_remarks(options)]
    if warnings:
        yield ""
        yield "Warnings"
        yield from (f"  {warning}" for warning in warnings)


def _listeners(options: Options) -> Iterator[str]:
    yield "Listens"
    port = "a random port" if options.port < 0 else f"port {options.port}"
    yield f"  for clients on {options.host}, {port}"
    if options.proxy_protocol:
        yield "    only through a proxy that sends PROXY headers"
    if options.tls is not None:
        yield from (f"    {line}" for line in _tls(options.tls))
        if options.allow_non_tls:
            yield "    clients without TLS are accepted too"
    if options.http_port or options.https_port:
        where = host_port(options.http_address, options.http_port or options.https_port)
        yield f"  for monitoring on {options.http_scheme}://{where}"
        if options.http_user:
            yield f"    for user {options.http_user}, with a password; /healthz for everybody"
    yield from _cluster(options)


def _cluster(options: Options) -> Iterator[str]:
    cluster = options.cluster
    if cluster is None or not cluster.is_on:
        return
    port = "a random port" if cluster.port < 0 else f"port {cluster.port}"
    name = f"cluster {cluster.name}" if cluster.name else "a cluster whose name the servers choose"
    yield f"  for other servers of {name} on {cluster.host or '0.0.0.0'}, {port}"
    if cluster.routes:
        yield f"    connects to {', '.join(map(without_secrets, cluster.routes))}"
    if cluster.tls is not None:
        yield f"    TLS {cluster.tls.min_version} or later, with certificates of both sides"
        yield from (f"    {line}" for line in _certificates(cluster.tls))
    if not cluster.authorization.user and cluster.tls is None:
        yield "    every server that reaches the port may join: there is neither a login nor TLS"


def _tls(tls: TlsOptions) -> Iterator[str]:
    when = "after INFO"
    if tls.handshake_first is not None:
        wait = format_duration(tls.handshake_first)
        when = f"before INFO, or after it if the client is silent for {wait}"
        if not tls.handshake_first:
            when = "before INFO"
    yield f"TLS {tls.min_version} or later, handshake {when}"
    yield from _certificates(tls)
    if tls.verify_and_map:
        yield "clients log in with their certificate"
    elif tls.verify:
        yield "clients must have a certificate"


def _certificates(tls: TlsOptions) -> Iterator[str]:
    files = [tls.cert_file] if tls.cert_file else [pair.cert_file for pair in tls.certs]
    yield from (_certificate(path) for path in files if path is not None)


def _certificate(path: Path) -> str:
    found = _expiry(path)
    if found is None:
        return f"certificate {path}"
    subject, end = found
    return f"certificate {path}: {subject or 'no subject'}, valid until {end:%Y-%m-%d}"


def _expiry(path: Path) -> tuple[str, datetime] | None:
    """Return the subject and the end of the first certificate of a file."""
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        return None
    return certificate.subject.rfc4514_string(), certificate.not_valid_after_utc


def _logins(options: Options) -> Iterator[str]:
    yield ""
    yield "Who may log in"
    login = options.authorization
    if options.operators or options.trusted_keys:
        count = len(options.operators) or len(options.trusted_keys)
        yield f"  users with JWTs of accounts that {_many(count, 'operator')} signed"
        kind = options.resolver.kind if options.resolver else "none"
        yield f"  accounts come from: {kind} resolver, {len(options.resolver_preload)} preloaded"
    if login.token:
        yield "  everyone with the token"
    if login.user:
        yield f"  user {login.user}, with a password"
    users = list(all_users(options))
    for account, user in users[:USERS_SHOWN_MAX]:
        yield f"  {_user(user)} in account {account}{_rights(user.permissions)}"
    if len(users) > USERS_SHOWN_MAX:
        yield f"  and {len(users) - USERS_SHOWN_MAX} more users"
    if login.auth_callout:
        yield f"  whom the auth callout service in account {login.auth_callout.account} accepts"
    if options.no_auth_user:
        yield f"  clients without credentials, as user {options.no_auth_user}"
    if not options.auth_required:
        yield f"  everyone, without credentials, to account {GLOBAL}"


def _user(user: UserOptions) -> str:
    if user.nkey:
        return f"nkey {user.nkey}"
    how = "by certificate or without a password" if not user.password else "with a password"
    return f"user {user.user}, {how},"


def _rights(permissions: PermissionsOptions | None) -> str:
    if permissions is None:
        return ""
    rules = []
    for verb, rule in (("publish", permissions.publish), ("subscribe", permissions.subscribe)):
        if rule.allow is not None:
            rules.append(f"{verb} {', '.join(rule.allow) or 'nothing'}")
        if rule.deny:
            rules.append(f"not {verb} {', '.join(rule.deny)}")
    if permissions.allow_responses:
        rules.append("publish responses")
    return f": may {'; '.join(rules)}" if rules else ""


def _accounts(options: Options) -> Iterator[str]:
    yield ""
    yield "Accounts"
    if options.no_system_account:
        yield "  no system account"
    else:
        yield f"  {options.system_account or SYSTEM} is the system account"
    for name, account in options.accounts.items():
        yield f"  {name}: {_many(len(account.users), 'user')}, JetStream {_has(account.jetstream)}"
        yield from (f"    {line}" for line in _shares(account))
        for source, to in account.mappings.items():
            targets = ", ".join(f"{each.destination} ({each.weight}%)" for each in to)
            yield f"    maps {source} to {targets}"


def _has(jetstream: AccountJetStream | None) -> str:
    return "on" if jetstream is not None and jetstream.enabled else "off"


def _shares(account: AccountOptions) -> Iterator[str]:
    for export in account.exports:
        who = "all accounts" if export.accounts is None else ", ".join(export.accounts)
        yield f"exports {_kind(export)} {export.subject} to {who}"
    for each in account.imports:
        to = each.to or (each.prefix if isinstance(each, StreamImport) else "")
        local = f" as {to}" if to else ""
        yield f"imports {_kind(each)} {each.subject} of {each.account}{local}"


def _kind(shared: StreamExport | ServiceExport | StreamImport | ServiceImport) -> str:
    return "stream" if isinstance(shared, StreamExport | StreamImport) else "service"


def _jetstream(options: Options) -> Iterator[str]:
    yield ""
    jetstream = options.jetstream
    if not jetstream.enabled:
        yield "JetStream is off"
        return
    place = options.store_dir or jetstream.store_dir or "a directory for temporary files"
    yield f"JetStream keeps its data in {place}"
    for name, what in (("max_memory_store", "memory"), ("max_file_store", "files")):
        limit = getattr(jetstream, name)
        amount = "three quarters of what there is" if limit < 0 else f"{limit} bytes"
        yield f"  {what}: {amount}"
    always = "before each acknowledgement"
    pace = always if jetstream.syncs_always else f"every {format_duration(jetstream.sync_interval)}"
    yield f"  file streams are synced {pace}"
    if jetstream.domain:
        yield f"  domain {jetstream.domain}"
    if jetstream.key:
        yield f"  files are encrypted ({jetstream.cipher})"


def _others(options: Options) -> Iterator[str]:
    changed = [
        (name, setting, getattr(options, name))
        for name, setting in settings_of(Options).items()
        if name not in EXPLAINED and getattr(options, name) != setting.default
    ]
    if changed:
        yield ""
        yield "Other settings that are not the defaults"
    for name, setting, value in changed:
        is_secret: Any = setting.metadata["kind"].is_secret
        yield f"  {name}: {REDACTED if is_secret else shown(value)}"


def _remarks(options: Options) -> Iterator[str]:
    """Yield what the operator of the server may not want."""
    from natsd.config.options import PAYLOAD_WARN_BYTES

    login = options.authorization
    passwords = [login.password, login.token, options.http_password]
    passwords += [user.password for _, user in all_users(options)]
    plain = sum(bool(each) and not each.startswith("$2") for each in passwords)
    if plain:
        yield f"{_many(plain, 'password')} or token in plain text: nkeys or bcrypt are safer"
    if options.max_payload > PAYLOAD_WARN_BYTES:
        yield "max_payload over 8 MiB is generally discouraged"
    if not options.auth_required and options.host not in ("127.0.0.1", "::1", "localhost"):
        yield "everyone who reaches this address may log in"
    now = datetime.now(UTC)
    for path in _certificate_files(options.tls):
        found = _expiry(path)
        if found is not None and found[1] < now:
            yield f"the certificate {path} has expired"
        elif found is not None and found[1] < now + EXPIRES_SOON:
            yield f"the certificate {path} expires in {(found[1] - now).days} days"


def _certificate_files(tls: TlsOptions | None) -> Iterator[Path]:
    if tls is not None:
        files = (tls.cert_file, *(pair.cert_file for pair in tls.certs))
        yield from (path for path in files if path is not None)


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
