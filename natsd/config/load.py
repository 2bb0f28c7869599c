"""Options from a configuration file and the command line.

    loaded = load_options("nats.conf", {"port": 4333})
    loaded.options, loaded.digest, loaded.warnings

- Defaults are overridden by the file, and the file by the command line (`flags`).
- All mistakes of a file are found at once: `error.every`, each with its position.
- Warnings are those that nats-server has too; notes are what only natsd says.

Start, `-t`, `natsd config` and reload call it by `load_checked` (natsd/server/start_checks.py).

Source: nats-server's `ProcessConfigFile` (server/opts.go).
"""

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from natsd.config import authorization, jetstream_options
from natsd.config.account_names import GLOBAL
from natsd.config.files import ParsedFile, nothing_collected, parse_file
from natsd.config.key_environment import keys_of
from natsd.config.listen import with_listen
from natsd.config.loaded import LoadedConfig
from natsd.config.options import Options
from natsd.config.overrides import with_flags
from natsd.config.sections import section_of
from natsd.config.settings import (
    NOWHERE,
    OptionsError,
    Position,
    SettingPath,
    locate,
    raise_together,
)
from natsd.config.tree import ConfigMap
from natsd.core.durations import format_duration

if TYPE_CHECKING:
    from natsd.config.tls_options import TlsOptions

LISTENS: Final = {
    "listen": ("host", "port"),
    "http": ("http_host", "http_port"),
    "https": ("http_host", "https_port"),
}
ALIASES: Final = {
    **{name: port for name, (_, port) in LISTENS.items()},  # replaced before, known for hints
} | {
    alias: name
    for name, aliases in {
        "host": "net",
        "log_file": "logfile",
        "log_size_limit": "logfile_size_limit",
        "logfile_max_num": "log_max_num",
        "pid_file": "pidfile",
        "http_port": "monitor_port",
        "max_connections": "max_conn",
        "max_subscriptions": "max_subs",
        "max_sub_tokens": "max_subscription_tokens",
        "mappings": "maps",
        "system_account": "system",
        "no_system_account": "no_system no_sys_acc",
        "operators": "operator root roots root_operator root_operators",
        "trusted_keys": "trusted",
        "resolver": "account_resolver accounts_resolver",
        "disable_sublist_cache": "no_sublist_cache",
        "store_dir": "storedir",
        "leafnodes": "leaf",
        "websocket": "ws",
    }.items()
    for alias in aliases.split()
}
SECTION_ALIASES: Final = {
    "authorization": authorization.ALIASES,
    "jetstream": jetstream_options.ALIASES,
}
"""Sections whose settings change one by one, with the other names of their settings."""
SECONDS: Final = ("ping_interval", "write_deadline")
"""Durations for which nats-server takes a number of seconds, with a warning."""
TEXT_DURATIONS: Final = ("lame_duck_duration", "lame_duck_grace_period")
"""Durations for which nats-server takes no number."""
LAME_DUCK_LEAST: Final = timedelta(seconds=30)
LONG_TIMEOUT: Final = timedelta(seconds=60)


def load_options(
    path: Path | str | None,
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] = os.environ,
    *,
    further_check: Callable[[Options], None] = lambda _options: None,
) -> LoadedConfig:
    """Return the options of a file (None: no file) and the command line.

    `further_check` raises OptionsError for what other rooms refuse. Raises OptionsError.
    """
    if path is None:
        return LoadedConfig(with_flags(None, flags or {}))
    with nothing_collected():  # until the tree is gone too
        return _loaded(path, flags or {}, environment, further_check)


def _loaded(
    path: Path | str,
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    further_check: Callable[[Options], None],
) -> LoadedConfig:
    """Return the options of a file and the command line. Raises OptionsError.

    At its end the tree of the file is gone, before garbage collection would look at it: with 10,000
    users that took 60 ms, in which no other thread runs.
    """
    parsed = parse_file(path, environment)
    options = options_of(parsed.tree)
    warnings = tuple(_warnings(parsed, options, str(path)))
    notes = tuple(f"{position}: {text}" for position, text in parsed.warnings)
    try:
        _check_file_only(parsed, options)
        options = _with_keys(with_flags(options, flags), environment)
        _check_files(options)
        further_check(options)
    except OptionsError as error:
        locate(error, parsed.tree, ALIASES)
        raise
    return LoadedConfig(
        options,
        parsed.digest,
        Path(path),
        flags,
        parsed.files,
        _places(parsed.tree),
        warnings,
        notes,
    )


def options_of(tree: ConfigMap) -> Options:
    """Return the options of a parsed file. Raises OptionsError."""
    return section_of(Options, with_listen(tree, LISTENS), aliases=ALIASES)


def error_lines(error: OptionsError) -> list[str]:
    """Return one line for each mistake, in the order of their positions."""
    return [
        str(each) if each.position in (None, NOWHERE) else f"{each.position}: {each}"
        for each in error.every
    ]


def _places(tree: ConfigMap) -> dict[str, Position]:
    """Return where each setting stands; one of a section is named `<section>.<setting>`."""
    places = {}
    for key, value in with_listen(tree, LISTENS).items():
        name = ALIASES.get(key.lower(), key.lower())
        places[name] = _place(key)
        if name in SECTION_ALIASES and isinstance(value, ConfigMap):
            for inner in value:
                given = inner.lower()
                places[f"{name}.{SECTION_ALIASES[name].get(given, given)}"] = _place(inner)
    return places


def _warnings(parsed: ParsedFile, options: Options, name: str) -> Iterator[str]:
    if not parsed.tree:
        yield f"{name}: config has no values or is empty"
    for key, value in parsed.tree.items():
        field = str(key).lower()
        if field in SECONDS and isinstance(value, int):
            yield (
                f'{_place(key)}: invalid use of field "{field}": '
                f"{field} should be converted to a duration"
            )
        if field == "accounts" and isinstance(value, Mapping):
            yield from _unused_samplings(value, options)
        if field == "authorization" and options.authorization.timeout > LONG_TIMEOUT:
            seconds = options.authorization.timeout.total_seconds()
            yield (
                f'{_place(key)}: invalid use of field "timeout": timeout of {seconds:g} seconds is '
                "high, consider keeping it under 60 seconds. possibly caused by unquoted duration; "
                "use '1m' instead of 1m, for example"
            )


def _unused_samplings(accounts: Mapping[str, object], options: Options) -> Iterator[str]:
    for name, account in accounts.items():
        if name not in options.accounts or options.accounts[name].msg_trace.dest:
            continue
        for key, value in account.items() if isinstance(account, Mapping) else ():
            if key.lower() in ("msg_trace", "trace_dest") and value:
                yield (
                    f"{_place(key)}: Trace destination sampling ignored since no destination was "
                    "set"
                )


def _with_keys(options: Options, environment: Mapping[str, str]) -> Options:
    """Return the options with JetStream's keys of the environment, if the file has none."""
    if not options.jetstream.enabled or options.jetstream.key:
        return options
    keys = keys_of(environment)
    return with_flags(options, {f"jetstream.{name}": key for name, key in keys.items()})


def _place(key: str) -> Position:
    position: Position = getattr(key, "position", NOWHERE)
    return position


def _check_file_only(parsed: ParsedFile, options: Options) -> None:
    """Check what only files must not have. Raises OptionsError."""
    if GLOBAL in options.accounts:
        raise OptionsError(f'"{GLOBAL}" is a Reserved Account', path=("accounts", GLOBAL))
    for key, value in parsed.tree.items():
        name = str(key).lower()
        if name in TEXT_DURATIONS and not isinstance(value, str):
            raise OptionsError(f"{name} must be a text such as '2m', not {value}", setting=name)
    if options.lame_duck_duration < LAME_DUCK_LEAST:
        raise OptionsError(
            f"invalid lame_duck_duration of {format_duration(options.lame_duck_duration)}, "
            "minimum is 30 seconds",
            setting="lame_duck_duration",
        )


def _check_files(options: Options) -> None:
    """Check that the files of certificates can be used. Raises OptionsError."""
    errors = []
    for path, tls in _tls_sections(options):
        from natsd.config.tls_files import check_tls_files

        try:
            check_tls_files(tls)
        except OptionsError as error:
            names = ": ".join(each for each in path if isinstance(each, str))
            errors.append(OptionsError(f"{names}: {error}", path=path))
    raise_together(errors)


def _tls_sections(options: Options) -> "Iterator[tuple[SettingPath, TlsOptions]]":
    """Yield the sections of TLS that the options have, with their paths."""
    if options.tls is not None:
        yield ("tls",), options.tls
    if options.resolver_tls is not None:
        yield ("resolver_tls",), options.resolver_tls
    for name in ("cluster", "gateway", "leafnodes", "websocket", "mqtt"):
        block = getattr(options, name)
        if block is not None and block.tls is not None:
            yield (name, "tls"), block.tls
