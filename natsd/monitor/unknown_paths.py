"""Answers to paths that no endpoint has, as Go's `http.ServeMux` gives them.

A path such as `//varz` or `/./varz` is redirected to the clean one: programs that join a URL ending
in a slash with `/varz` rely on it.
"""

import html
import posixpath
from typing import Final
from urllib.parse import quote

from aiohttp import web

from natsd.monitor.query import has_bad_escape

_KEPT: Final = "/%?&=:;@!$'()*+,~"
"""Characters of a path and its parameters that are not escaped, besides letters and digits."""


def unknown_path(request: web.Request) -> web.Response:
    """Return a redirection to the clean path, or 404; 400 for a path that cannot be read."""
    path, mark, query = request.raw_path.partition("?")
    if has_bad_escape(path):
        return web.Response(text="400 Bad Request", status=400)
    clean = _clean(path)
    if path.startswith("/") and clean != path:
        where = quote(clean + mark + query, safe=_KEPT, errors="surrogateescape")
        page = f'<a href="{html.escape(where)}">Temporary Redirect</a>.\n\n'
        return web.Response(
            text=page if request.method == "GET" else "",
            content_type="text/html",
            status=307,
            headers={"Location": where},
        )
    return web.Response(text="404 page not found\n", status=404)


def _clean(path: str) -> str:
    """Return the path without `.`, `..` and empty parts; a slash at its end stays."""
    clean = "/" + posixpath.normpath(path).lstrip("/")
    return clean + "/" if path.endswith("/") and clean != "/" else clean
