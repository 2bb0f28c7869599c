"""How a load process logs in: without credentials, as a user, over TLS, or with a JWT."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

FIELDS: Final[Mapping[str, object]] = {
    "verbose": False,
    "pedantic": False,
    "lang": "python",
    "version": "1",
    "name": "natsd-bench",
    "protocol": 1,
    "headers": True,
    "no_responders": True,
}


@dataclass(frozen=True)
class Access:
    """The credentials of a connection."""

    user: str = ""
    password: str = ""
    tls: bool = False
    jwt: str = ""
    seed: str = ""

    @property
    def needs_info(self) -> bool:
        """Whether CONNECT can only be sent after INFO."""
        return self.tls or bool(self.jwt)

    def connect(self, info: Mapping[str, Any]) -> bytes:
        """Return the CONNECT line that answers an INFO."""
        fields = dict(FIELDS)
        if self.user:
            fields |= {"user": self.user, "pass": self.password}
        if self.jwt:
            signature = _sign(self.seed, str(info["nonce"]).encode())
            fields |= {"jwt": self.jwt, "sig": signature}
        return b"CONNECT " + json.dumps(fields, separators=(",", ":")).encode() + b"\r\n"


def _sign(seed: str, nonce: bytes) -> str:
    from natsd.auth.nkeys import KeyPair

    return base64.urlsafe_b64encode(KeyPair.from_seed(seed).sign(nonce)).decode().rstrip("=")


OPEN: Final = Access()
"""The access to a server without users."""
