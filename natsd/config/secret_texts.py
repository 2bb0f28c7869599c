"""Secrets within texts that are shown: in errors of the configuration, in reports, in arguments."""

import re
from typing import Final

REDACTED: Final = "[REDACTED]"
_SEED: Final = r"\bS[ACNOUPX][A-Z2-7]{50,}"
_USERINFO: Final = r"(?<=//)[^/\s,]*(?=@)"
_PRIVATE_KEY: Final = r"(?s:-----BEGIN [A-Z ]*PRIVATE KEY-----.*)"
_SECRET: Final = re.compile(f"{_SEED}|{_USERINFO}|{_PRIVATE_KEY}")


def without_secrets(text: str) -> str:
    """Return a text with seeds of nkeys, private keys, and users and passwords of URLs redacted."""
    return _SECRET.sub(REDACTED, text)
