"""Command line arguments that several jobs share: the streams, and the connection."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from natsd.spark.jobs.errors import JobError


def add_subject(parser: argparse.ArgumentParser) -> None:
    """Add the argument that selects messages by subject."""
    parser.add_argument("--subject", metavar="SUBJECTS", help="only of these, by commas")


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add the connection arguments, and `--option` for other options of the data source."""
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
    """Add the arguments that say whether and how often a query continues."""
    parser.add_argument("--follow", action="store_true", help="go on until it is stopped")
    parser.add_argument("--interval", default="10 seconds", help="of batches, with --follow")


def add_storage(parser: argparse.ArgumentParser) -> None:
    """Add the argument for the file system of a Delta table."""
    parser.add_argument(
        "--storage",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of the table's storage for Delta's log, for example aws_region=eu-west-1",
    )


def storage_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options given by `--storage`. Raises JobError for one without `=`."""
    return pairs(arguments.storage, "--storage")


def source_of(arguments: argparse.Namespace, streams: str) -> dict[str, str]:
    """Return the data source's options to read these streams (by commas). Raises JobError."""
    source = {"streams": streams, **connection_of(arguments), **options_of(arguments)}
    return {**source, "subjects": arguments.subject} if arguments.subject else source


def connection_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the connection options of the arguments. Raises JobError for an unreadable file."""
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
    """Return the options given by `--option`. Raises JobError for one without `=`."""
    return pairs(arguments.option, "--option")


def pairs(given: Iterable[str], flag: str) -> dict[str, str]:
    """Parse `NAME=VALUE` arguments. Raises JobError for one without `=`."""
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
