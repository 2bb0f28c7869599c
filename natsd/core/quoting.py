"""Text of clients as a log line may show it: in quotes, and nothing that a terminal would obey."""

import json


def quoted(text: str) -> str:
    """`text` in double quotes; escaped where it holds anything unprintable, as Go's %q does."""
    if text.isprintable():
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return json.dumps(text)
