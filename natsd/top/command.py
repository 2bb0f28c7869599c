"""The `natsd top` command: its options, and its output for scripts."""

import argparse
import json
import ssl
import sys
import time
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from natsd.top.endpoints import PORT, Endpoints, TopError
from natsd.top.source import NatsdSource, Source
from natsd.top.texts import plain, short, size
from natsd.top.views import VIEWS, View, figures, headline

DESCRIPTION: Final = """\
Show what a NATS server does: rates, connections, streams, consumers, subjects and accounts.

The server's monitoring port is read: natsd's (-m 8222), or that of a nats-server.
"""
EXAMPLES: Final = """\
examples:
  natsd top                                 the server on this machine
  natsd top nats1:8222 --view consumers     another one; the consumers first
  natsd top https://nats1:8222 --user ann   with a password, which is asked for
  natsd top --once --view streams           a table, for scripts
  natsd top --json | jq .rates              everything as JSON
"""
RATE_S: Final = 1.1
"""Seconds between the two looks from which `--once` and `--json` know rates."""
CELL_MAX: Final = 40


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise TopError(f"{message} (natsd top -h shows the options)")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    result = _Parser(
        prog="natsd top",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument(
        "url", nargs="?", default=f"http://127.0.0.1:{PORT}", help="default: %(default)s"
    )
    result.add_argument(
        "--view", choices=[view.name for view in VIEWS], default="connections", help="first table"
    )
    result.add_argument(
        "--interval", type=float, default=1.0, metavar="SECONDS", help="default: %(default)s"
    )
    result.add_argument("--once", action="store_true", help="print the figures and one table")
    result.add_argument("--json", action="store_true", help="print everything as JSON")
    login = result.add_argument_group("login and TLS")
    login.add_argument("--user", default="", metavar="NAME", help="user of the monitoring port")
    login.add_argument("--password", metavar="TEXT", help="its password; otherwise it is asked for")
    login.add_argument("--tlsca", metavar="FILE", help="certificates of authorities to trust")
    login.add_argument("--tlscert", metavar="FILE", help="certificate to present")
    login.add_argument("--tlskey", metavar="FILE", help="its key")
    login.add_argument("--insecure", action="store_true", help="accept any certificate")
    return result


def run(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    try:
        options = parser().parse_args(arguments)
        source = find_source(_endpoints(options))
        if options.once or options.json:
            _print_once(source, options)
            return 0
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise TopError("this is no terminal; --once or --json prints for scripts")
        first = source.summary()
    except TopError as error:
        print(f"natsd top: {plain(str(error))}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, EOFError):  # the second: no password was given
        return 130
    from natsd.top.app import TopApp

    TopApp(source, first, options.view, max(options.interval, 0.1)).run()
    return 0


def find_source(endpoints: Endpoints) -> Source:
    """Return the source for the kind of server that answers. Raises TopError."""
    first = endpoints.get("summaryz", optional=True)
    if first is not None and "server" in first:
        return NatsdSource(endpoints, first)
    from natsd.top.nats_server import NatsServerSource

    return NatsServerSource(endpoints)


def _endpoints(options: argparse.Namespace) -> Endpoints:
    password = options.password or ""
    if options.user and options.password is None:
        from getpass import getpass

        password = getpass(f"Password of {options.user}: ")
    return Endpoints(options.url, user=options.user, password=password, context=_tls(options))


def _tls(options: argparse.Namespace) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.tlsca)
        if options.tlscert:
            context.load_cert_chain(options.tlscert, options.tlskey)
    except OSError as error:
        raise TopError(f"the certificates cannot be used: {error.strerror or error}") from None
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _print_once(source: Source, options: argparse.Namespace) -> None:
    source.summary()
    time.sleep(RATE_S)
    summary = source.summary()
    if options.json:
        print(json.dumps(summary, indent=2))
        return
    view = next(view for view in VIEWS if view.name == options.view)
    print("\n".join(lines_of(summary, view)))


def lines_of(summary: dict[str, Any], view: View) -> list[str]:
    """Return the figures of the server and a table, as plain text."""
    rates, now = summary["rates"], summary["server"]["now"]
    traffic = " · ".join(
        f"{way} {short(rates.get(f'{way}_msgs'))} msg/s, {size(rates.get(f'{way}_bytes'))}/s"
        for way in ("in", "out")
    )
    told = " · ".join(f"{name} {value}" for name, value in figures(summary))
    rows = view.sorted(view.rows(summary), now, view.sort, descending=True)
    table = [[column.title for column in view.columns]]
    table += [[_cut(column.text(row, now)) for column in view.columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if column.is_text else cell.rjust(width)
            for cell, width, column in zip(line, widths, view.columns, strict=True)
        ).rstrip()
        for line in table
    ]
    return [headline(summary), traffic, told, *map(plain, summary["problems"]), "", *lines]


def _cut(text: str) -> str:
    return text if len(text) <= CELL_MAX else text[: CELL_MAX - 1] + "…"
