"""Quoting of client text for log lines, so that it holds no control characters for a terminal."""

import json


def quoted(text: str) -> str:
    """Return `text` in double quotes; unprintable characters are escaped, as Go's %q does."""
    if text.isprintable():
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return json.dumps(text)
