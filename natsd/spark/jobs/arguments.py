"""Arguments that several jobs share: where streams are, and how they are reached."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from natsd.spark.jobs.errors import JobError


def add_subject(parser: argparse.ArgumentParser) -> None:
    """Which messages of the streams."""
    parser.add_argument("--subject", metavar="SUBJECTS", help="only of these, by commas")


def add_connection(parser: argparse.ArgumentParser) -> None:
    """How a server is reached; other options of the data source go behind `--option`."""
    group = parser.add_argument_group("connection")
    group.add_argument(
        "-s", "--server", metavar="URL", help="servers, by commas (default nats://127.0.0.1:4222)"
    )
    group.add_argument("--creds", metavar="FILE", help="credentials")
    group.add_argument("--nkey", metavar="FILE", help="an nkey's seed")
    group.add_argument("--user")
    group.add_argument(
        "--password-file", metavar="FILE", help="read from a file: command lines can be seen"
    )
    group.add_argument("--tlsca", metavar="FILE", help="certificates of authorities")
    group.add_argument("--tlscert", metavar="FILE")
    group.add_argument("--tlskey", metavar="FILE")
    group.add_argument("--js-domain", metavar="DOMAIN")
    group.add_argument(
        "-o",
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any option of the data source; may be repeated",
    )


def add_trigger(parser: argparse.ArgumentParser) -> None:
    """Whether a query goes on."""
    parser.add_argument("--follow", action="store_true", help="go on until it is stopped")
    parser.add_argument("--interval", default="10 seconds", help="of batches, with --follow")


def source_of(arguments: argparse.Namespace, streams: str) -> dict[str, str]:
    """The data source's options for reading these streams, by commas. Raises JobError."""
    source = {"streams": streams, **connection_of(arguments), **options_of(arguments)}
    return {**source, "subjects": arguments.subject} if arguments.subject else source


def connection_of(arguments: argparse.Namespace) -> dict[str, str]:
    """The data source's options that these arguments are. Raises JobError for a file's error."""
    named = {
        "servers": arguments.server,
        "credentials": arguments.creds,
        "nkey": arguments.nkey,
        "user": arguments.user,
        "password": _content(arguments.password_file),
        "tlsCa": arguments.tlsca,
        "tlsCert": arguments.tlscert,
        "tlsKey": arguments.tlskey,
        "domain": arguments.js_domain,
    }
    return {name: value for name, value in named.items() if value is not None}


def options_of(arguments: argparse.Namespace) -> dict[str, str]:
    """What stands behind `--option`. Raises JobError for one that has no `=`."""
    return pairs(arguments.option, "--option")


def pairs(given: Iterable[str], flag: str) -> dict[str, str]:
    """`NAME=VALUE` arguments. Raises JobError for one that has no `=`."""
    result = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise JobError(f"{flag} {pair}: write it as NAME=VALUE")
        result[name] = value
    return result


def _content(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"--password-file {path}: {error}") from None
