"""The dashboard at `/`: a page of static files, which draws what `/summaryz` answers.

- There is no build step and no request to another host. The policy in `HEADERS` allows scripts,
  styles and requests of this server only, and nothing inline, so that a name that some client chose
  could not become markup even if a script made a mistake.
- Links are relative, so that the page works behind a proxy that adds a path. Below `http_base_path`
  the page has no slash at its end; a `base` element says what the links are relative to.
"""

import posixpath
from functools import cache
from importlib import resources
from typing import Final
from urllib.parse import quote

PAGE: Final = "index.html"
FILES: Final = {
    PAGE: "text/html",
    "dashboard.css": "text/css",
    "dashboard.js": "text/javascript",
    "charts.js": "text/javascript",
    "tables.js": "text/javascript",
    "texts.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
"""The files with their types; the page is at `/`, the others beside it."""

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_HEAD: Final = b'<meta charset="utf-8">'


def dashboard_file(name: str, base_path: str) -> bytes:
    """Return a file of the dashboard, served below that `http_base_path`."""
    content = _read(name)
    last = posixpath.basename(posixpath.normpath(base_path)) if base_path.strip("/") else ""
    if name != PAGE or not last:
        return content
    return content.replace(_HEAD, _HEAD + f'\n<base href="./{quote(last, safe="")}/">'.encode(), 1)


@cache
def _read(name: str) -> bytes:
    return resources.files(__package__).joinpath(name).read_bytes()
