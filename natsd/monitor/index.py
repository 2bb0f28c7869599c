"""The page at `/`, with a link to each endpoint."""

from typing import Final

from natsd.version import NATS_VERSION, VERSION

LINKS: Final = {
    "/varz": "General",
    "/jsz": "JetStream",
    "/connz": "Connections",
    "/accountz": "Accounts",
    "/accstatz": "Account Stats",
    "/subsz": "Subscriptions",
    "/routez": "Routes",
    "/leafz": "LeafNodes",
    "/gatewayz": "Gateways",
    "/raftz": "Raft Groups",
    "/healthz": "Health Probe",
    "/debug/vars": "Expvar",
}

_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>natsd</title>
<style>
body {{ font-family: system-ui, sans-serif; margin: 2rem }}
a {{ display: block; padding: .2rem 0; color: inherit }}
</style>
</head>
<body>
<h1>natsd {version}</h1>
<p>NATS {nats_version}</p>
{links}
</body>
</html>
"""


def index_page() -> str:
    """Return the page as HTML; its links are relative, so that they work below a base path."""
    links = "\n".join(f'<a href=".{path}">{title}</a>' for path, title in LINKS.items())
    return _PAGE.format(version=VERSION, nats_version=NATS_VERSION, links=links)
