"""docs/configuration.md has a row for every setting, with the names, the default and the meaning.

python -m tests.config.test_documentation      writes the tables of the page anew
"""

import re
from pathlib import PurePath

from natsd.cli.config_diff import shown
from natsd.config import (
    account_jetstream,
    account_options,
    auth_options,
    authorization,
    cluster_options,
    jetstream_options,
    listener_options,
    load,
    mapping_options,
    proxies_options,
    sharing_options,
    tls_options,
    trace_options,
)
from natsd.config.options import BLOCKS, Options
from natsd.config.resolver_options import ResolverOptions
from natsd.config.settings import settings_of
from tests.source.reading import ROOT

PAGE = ROOT / "docs" / "configuration.md"
TABLES: dict[str, tuple[type, dict[str, str]]] = {
    "top level": (Options, load.ALIASES),
    "authorization": (authorization.AuthorizationOptions, authorization.ALIASES),
    "users": (auth_options.UserOptions, auth_options.USER_ALIASES),
    "permissions": (auth_options.PermissionsOptions, auth_options.PERMISSIONS_ALIASES),
    "auth_callout": (auth_options.AuthCalloutOptions, auth_options.CALLOUT_ALIASES),
    "accounts": (account_options.AccountOptions, account_options.ALIASES),
    "accounts limits": (account_options.AccountLimits, account_options.LIMITS_ALIASES),
    "accounts jetstream": (account_jetstream.AccountJetStream, account_jetstream.ALIASES),
    "exports of services": (sharing_options.ServiceExport, sharing_options.EXPORT_ALIASES),
    "imports of streams": (sharing_options.StreamImport, {}),
    "imports of services": (sharing_options.ServiceImport, {}),
    "latency": (sharing_options.LatencyOptions, {}),
    "mappings": (mapping_options.MappingDestination, mapping_options.ALIASES),
    "msg_trace": (trace_options.MsgTraceOptions, {}),
    "proxies": (proxies_options.ProxiesOptions, {}),
    "jetstream": (jetstream_options.JetStreamOptions, jetstream_options.ALIASES),
    "jetstream limits": (jetstream_options.JetStreamLimits, {}),
    "jetstream limits batch": (jetstream_options.BatchLimits, {}),
    "cluster": (
        cluster_options.ClusterOptions,
        {**cluster_options.ALIASES, "net": "host", "listen": "port"},
    ),
    "compression": (
        listener_options.CompressionOptions,
        listener_options.COMPRESSION_ALIASES,
    ),
    "tls": (tls_options.TlsOptions, tls_options.ALIASES),
    "resolver": (ResolverOptions, {"type": "kind"}),
}
TABLE = re.compile(r"(?<=<!-- table: )(.+?)( -->\n).*?(?=<!-- end -->)", re.DOTALL)


def default_of(value: object) -> str:
    if isinstance(value, PurePath):
        return str(value)
    text = shown(value)
    return {"not given": "–", "{}": "–"}.get(text, f"`{text}`")


def table(kind: type, aliases: dict[str, str]) -> str:
    rows = ["| setting | default | meaning |", "|---|---|---|"]
    for name, setting in settings_of(kind).items():
        others = sorted(alias for alias, of in aliases.items() if of == name)
        names = ", ".join(f"`{each}`" for each in (name, *others))
        meaning = setting.metadata["kind"].description
        if kind is Options and name in BLOCKS:
            meaning += " (not supported yet)"
        rows.append(f"| {names} | {default_of(setting.default)} | {meaning} |")
    return "\n".join(rows) + "\n"


def with_tables(page: str) -> str:
    return TABLE.sub(lambda match: match[1] + match[2] + table(*TABLES[match[1]]), page)


def test_the_page_has_every_setting() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert {match[1] for match in TABLE.finditer(page)} == TABLES.keys()
    assert page == with_tables(page), "run: python -m tests.config.test_documentation"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
