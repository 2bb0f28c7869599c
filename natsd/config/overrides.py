"""Options of the command line over those of a file.

A flag is the name of an option, and overrides it. Two sections have flags of their own:

- `tls.enabled` False takes TLS away; any other `tls.` flag replaces the section of the file.
- `cluster.listen` (a URL; empty: no cluster), `cluster.routes` (URLs with commas between them) and
  the other settings of `cluster` change single settings of that section.

Source: nats-server's `ConfigureOptions`, `overrideTLS` and `overrideCluster` (server/opts.go).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from natsd.config.options import Options, make_options
from natsd.config.settings import OptionsError

if TYPE_CHECKING:
    from natsd.config.cluster_options import ClusterOptions
    from natsd.config.tls_options import TlsOptions

TLS: Final = "tls."
CLUSTER: Final = "cluster."


def with_flags(options: Options | None, flags: Mapping[str, Any]) -> Options:
    """Return the options with those of the command line in their place. Raises OptionsError."""
    settings = dict(flags)
    tls = _taken(settings, TLS)
    cluster = _taken(settings, CLUSTER)
    if tls:
        settings["tls"] = _tls(tls)
    if cluster:
        settings["cluster"] = _cluster(options.cluster if options else None, cluster)
    return make_options(options, **settings)


def _taken(settings: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Remove the settings whose names have a prefix, and return them without it."""
    names = [name for name in settings if name.startswith(prefix)]
    return {name.removeprefix(prefix): settings.pop(name) for name in names}


def _tls(given: dict[str, Any]) -> "TlsOptions | None":
    from natsd.config.tls_options import TlsOptions

    if not given.pop("enabled", True):
        return None
    if not given.get("cert_file"):
        raise OptionsError("TLS Server certificate must be present and valid")
    if not given.get("key_file"):
        raise OptionsError("TLS Server private key must be present and valid")
    return TlsOptions(**given)


def _cluster(base: "ClusterOptions | None", given: dict[str, Any]) -> "ClusterOptions":
    from natsd.config.cluster_options import ClusterOptions

    cluster = base or ClusterOptions()
    if "listen" in given:
        cluster = _listening(cluster, given.pop("listen"))
    if "routes" in given:
        routes = [each.strip() for each in given.pop("routes").split(",") if each.strip()]
        if routes and not cluster.port:
            raise OptionsError("solicited routes require cluster capabilities, e.g. --cluster")
        given["routes"] = routes
    return replace(cluster, **given)


def _listening(cluster: "ClusterOptions", url: str) -> "ClusterOptions":
    """Return the section with the address and the login of a URL; empty: without a listener."""
    from urllib.parse import unquote, urlsplit

    if not url:
        return replace(cluster, port=0, routes=())
    place, _, port = url.rpartition(":")
    try:
        parts = urlsplit(f"{place}:0")
        number = int(port)
    except ValueError:
        raise OptionsError("cluster: the URL must be nats://host:port") from None
    if parts.username is not None and parts.password is None:
        raise OptionsError("expected cluster password to be set")
    login = replace(
        cluster.authorization,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )
    return replace(cluster, host=parts.hostname or "", port=number, authorization=login)
