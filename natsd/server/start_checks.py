"""Checks of a start that need nothing but the settings and their files.

`natsd -t`, `natsd config` and reload make them too, so that a file that they accept is one that a
server starts with.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from natsd.config import Options, OptionsError
from natsd.config.account_names import GLOBAL, SYSTEM
from natsd.config.load import load_options
from natsd.config.loaded import LoadedConfig
from natsd.config.settings import SettingPath, in_words, raise_together
from natsd.core.quoting import quoted

_ADVERTISE: Final = re.compile(r"([^:]*|\[.*\])(:[+-]?\d+)?")


def load_checked(path: Path | str, flags: Mapping[str, Any] | None = None) -> LoadedConfig:
    """Return the options of a file and the command line, with all checks. Raises OptionsError."""
    return load_options(path, flags, further_check=check_start)


def check_start(options: Options) -> None:
    """Check what goes beyond single settings and blocks. Raises OptionsError."""
    _check_addresses(options)
    _check_system_account(options)
    _check_leafnodes(options)
    if options.shares:
        from natsd.server.sharing import check_sharing

        check_sharing(options)
    if options.operators or options.trusted_keys or options.resolver is not None:
        from natsd.auth.operator.trust import read_preload, read_trust

        read_trust(options)
        read_preload(options)
    if options.jetstream.enabled and options.has_cluster:
        from natsd.server.jetstream import check_jetstream_cluster

        check_jetstream_cluster(options)
    limits = options.jetstream
    if limits.enabled and options.accounts:
        from natsd.server.jetstream import check_promises

        check_promises(options, limits.max_memory_store, limits.max_file_store)


def _check_addresses(options: Options) -> None:
    tls = options.tls
    if tls is not None and tls.cert_file is None and not tls.certs:
        raise OptionsError(
            "tls: TLS needs a certificate: set 'cert_file' and 'key_file', or 'certs'",
            setting="tls",
        )
    routes = options.cluster if options.has_cluster else None
    tls = None if routes is None else routes.tls
    if tls is not None and tls.cert_file is None and not tls.certs:
        raise OptionsError(
            "cluster: TLS needs a certificate: set 'cert_file' and 'key_file', or 'certs'",
            path=("cluster", "tls"),
        )
    advertise = options.client_advertise
    if advertise and _ADVERTISE.fullmatch(advertise) is None:
        raise OptionsError(
            f"client_advertise must be host or host:port, not {in_words(advertise)}",
            setting="client_advertise",
        )


def _check_system_account(options: Options) -> None:
    from natsd.config.default_domains import has_jetstream

    name = options.system_account or SYSTEM
    if options.operators or options.trusted_keys:
        return
    if name not in {*options.accounts, GLOBAL, SYSTEM}:
        raise OptionsError(
            "error resolving system account: account missing", setting="system_account"
        )
    account = options.accounts.get(name)
    if account is not None and has_jetstream(account) and options.jetstream.enabled:
        raise OptionsError(
            "Not allowed to enable JetStream on the system account",
            path=("accounts", name, "jetstream"),
        )


def _check_leafnodes(options: Options) -> None:
    """Check that the accounts of leaf nodes exist; with operators they come from JWTs."""
    if options.leafnodes is None or options.operators:
        return
    known = {"", GLOBAL, *options.accounts}
    if not options.system_account and not options.no_system_account:
        known.add(SYSTEM)
    login = options.leafnodes.authorization
    named: list[tuple[str, SettingPath]] = [(login.account, ("account",))]
    named += [(user.account, ("users", index)) for index, user in enumerate(login.users)]
    raise_together(
        [
            OptionsError(
                f"cannot find local account {quoted(name)} specified in leafnode authorization",
                path=("leafnodes", "authorization", *path),
            )
            for name, path in named
            if name not in known
        ]
    )
