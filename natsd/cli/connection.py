"""The flags with which a command connects to a server; their names are those of the nats CLI.

The environment variables of the nats CLI (NATS_URL, NATS_USER …) are the defaults. A password is
better in a file or in the environment: other users can see a command line.
"""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from natsd.spark.wire.connecting import ClientOptions

_TEXTS: Final = (
    ("-s", "server", "URL", "NATS_URL", "servers, by commas (default: nats://127.0.0.1:4222)"),
    ("", "user", "NAME", "NATS_USER", "user, or token"),
    ("", "password", "TEXT", "NATS_PASSWORD", ""),
    ("", "password-file", "FILE", "", "the password, in a file"),
    ("", "token", "TEXT", "NATS_TOKEN", ""),
    ("", "creds", "FILE", "NATS_CREDS", "credentials: a JWT and its seed"),
    ("", "nkey", "FILE", "NATS_NKEY", "seed of an nkey"),
    ("", "tlscert", "FILE", "NATS_CERT", "certificate of the client"),
    ("", "tlskey", "FILE", "NATS_KEY", "its key"),
    ("", "tlsca", "FILE", "NATS_CA", "certificates of authorities"),
    ("", "js-domain", "NAME", "", "domain of JetStream"),
)


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    group = parser.add_argument_group("connection")
    for short, name, value, variable, text in _TEXTS:
        names = [short, f"--{name}"] if short else [f"--{name}"]
        shown = f"{text} [{variable}]".strip() if variable else text
        default = os.environ.get(variable) if variable else None
        group.add_argument(*names, metavar=value, default=default, help=shown)
    group.add_argument("--tlsfirst", action="store_true", help="TLS before the server's INFO")


def options_of(given: argparse.Namespace) -> "ClientOptions":
    """Return the options that the flags describe. Raises OSError if a file cannot be read."""
    from natsd.spark.wire.connecting import DEFAULT_SERVER, ClientOptions

    password, token, user = given.password, given.token, given.user
    if given.password_file:
        password = Path(given.password_file).read_text().rstrip("\r\n")
    if user and password is None and not token:
        user, token = None, user
    return ClientOptions(
        servers=tuple((given.server or DEFAULT_SERVER).split(",")),
        user=user,
        password=password,
        token=token,
        credentials=given.creds,
        nkey=given.nkey,
        tls_ca=given.tlsca,
        tls_cert=given.tlscert,
        tls_key=given.tlskey,
        tls_handshake_first=given.tlsfirst,
        domain=given.js_domain,
        request_timeout_s=10.0,
    )
