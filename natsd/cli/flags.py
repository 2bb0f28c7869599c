"""The daemon's flags, with nats-server's names, parsed by the rules of Go's `flag` package.

- One or two dashes mean the same. `-f value` and `-f=value` are both accepted; a switch takes a
  value only with `=`.
- Parsing stops at the first word without a dash; `--` ends the flags.
- `SECTIONS` is the table of flags: names, kind, options that the flag sets, help text. It follows
  nats-server's `ConfigureOptions` (server/opts.go).
- A flag of a feature that does not exist yet is parsed; the options then refuse it.
- An error is a `FlagError` with one line that names the flag.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Kind = Literal["text", "int", "size", "switch", "action"]

WITH_VALUE: Final = ("text", "int", "size")
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
_TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
_FALSE: Final = ("0", "f", "F", "FALSE", "false", "False")


class FlagError(Exception):
    """The command line is invalid; the text is one line for the user."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: its names, its kind, and the options that it sets or the action that it starts."""

    names: tuple[str, ...]
    kind: Kind
    sets: tuple[str, ...]
    value: str  # placeholder of the value in the help; empty: none
    help: str


def _flag(names: str, kind: Kind, sets: str, help_text: str, value: str = "") -> Flag:
    return Flag(tuple(names.split()), kind, tuple(sets.split()), value, help_text)


SECTIONS: Final[dict[str, tuple[Flag, ...]]] = {
    "Server": (
        _flag("a addr net", "text", "host", "Bind to host address (default: 0.0.0.0)", "host"),
        _flag(
            "p port", "int", "port", "Use port for clients (default: 4222, -1 for random)", "port"
        ),
        _flag("n name server_name", "text", "server_name", "Server name (default: auto)", "name"),
        _flag("P pid", "text", "pid_file", "File to store PID", "file"),
        _flag("m http_port", "int", "http_port", "Use port for http monitoring", "port"),
        _flag("ms https_port", "int", "https_port", "Use port for https monitoring", "port"),
        _flag("c config", "text", "config", "Configuration file", "file"),
        _flag("t", "switch", "test", "Test configuration and exit"),
        _flag(
            "sl signal",
            "text",
            "signal",
            "Send signal to natsd process (ldm, stop, quit, term, reopen, reload);"
            " pid is a PID or the path to a PID file",
            "signal[=pid]",
        ),
        _flag(
            "client_advertise",
            "text",
            "client_advertise",
            "Client URL to advertise to other servers",
            "string",
        ),
        _flag(
            "ports_file_dir",
            "text",
            "ports_file_dir",
            "Creates a ports file in the directory (<executable_name>_<pid>.ports)",
            "dir",
        ),
    ),
    "Limits": (
        _flag(
            "max_pending_total",
            "size",
            "max_pending_total",
            "Memory that pending bytes of all connections may take (default: 1/8 of what there is)",
            "size",
        ),
    ),
    "Logging": (
        _flag("l log", "text", "log_file", "File to redirect log output", "file"),
        _flag("s syslog", "switch", "syslog", "Log to the syslog service of this machine"),
        _flag(
            "r remote_syslog",
            "text",
            "remote_syslog",
            "Log to a syslog service (udp://localhost:514, tcp://, unix://)",
            "addr",
        ),
        _flag("T logtime", "switch", "logtime", "Timestamp log entries (default: true)"),
        _flag("logtime_utc", "switch", "logtime_utc", "Timestamps in UTC, not local time"),
        _flag("D debug", "switch", "debug", "Enable debugging output"),
        _flag("V trace", "switch", "trace", "Trace the raw protocol"),
        _flag(
            "VV",
            "switch",
            "trace trace_verbose",
            "Verbose trace (traces system account as well)",
        ),
        _flag("DV", "switch", "debug trace", "Debug and trace"),
        _flag("DVV", "switch", "debug trace trace_verbose", "Debug and verbose trace"),
        _flag(
            "log_size_limit",
            "int",
            "log_size_limit",
            "Logfile size limit in bytes (default: none)",
            "limit",
        ),
        _flag(
            "max_traced_msg_len",
            "int",
            "max_traced_msg_len",
            "Maximum printable length for traced messages (default: unlimited)",
            "len",
        ),
    ),
    "JetStream": (
        _flag("js jetstream", "switch", "jetstream", "Enable JetStream functionality"),
        _flag("sd store_dir", "text", "store_dir", "Set the storage directory", "dir"),
        _flag(
            "js_max_file_store",
            "size",
            "jetstream.max_file_store",
            "Bytes that file streams may take, as 10G (default: 75% of what is free or in use)",
            "size",
        ),
        _flag(
            "js_max_memory_store",
            "size",
            "jetstream.max_memory_store",
            "Bytes that memory streams may take, as 512M (default: 75% of the memory)",
            "size",
        ),
    ),
    "Authorization": (
        _flag("user", "text", "user", "User required for connections", "user"),
        _flag("pass", "text", "password", "Password required for connections", "password"),
        _flag("auth", "text", "token", "Authorization token required for connections", "token"),
    ),
    "TLS": (
        _flag("tls", "switch", "tls.enabled", "Enable TLS, do not verify clients (default: false)"),
        _flag("tlscert", "text", "tls.cert_file", "Server certificate file", "file"),
        _flag("tlskey", "text", "tls.key_file", "Private key for server certificate", "file"),
        _flag("tlsverify", "switch", "tls.verify", "Enable TLS, verify client certificates"),
        _flag("tlscacert", "text", "tls.ca_file", "Client certificate CA for verification", "file"),
    ),
    "Cluster": (
        _flag(
            "routes", "text", "cluster.routes", "Routes to solicit and connect", "rurl-1, rurl-2"
        ),
        _flag(
            "cluster cluster_listen",
            "text",
            "cluster.listen",
            "Cluster URL for solicited routes",
            "cluster-url",
        ),
        _flag("cluster_name", "text", "cluster.name", "Cluster Name", "string"),
        _flag(
            "no_advertise",
            "switch",
            "cluster.no_advertise",
            "Do not advertise known cluster information to clients",
        ),
        _flag(
            "cluster_advertise",
            "text",
            "cluster.advertise",
            "Cluster URL to advertise to other servers",
            "string",
        ),
        _flag(
            "connect_retries",
            "int",
            "cluster.connect_retries",
            "For implicit routes, number of connect retries",
            "number",
        ),
    ),
    "Profiling": (
        _flag(
            "profile", "int", "prof_port", "Serve profiles by HTTP on port (/debug/pprof/)", "port"
        ),
    ),
    "Common": (
        _flag("h help", "action", "help", "Show this message"),
        _flag("v version", "action", "version", "Show version"),
        _flag("help_tls", "action", "help_tls", "TLS help"),
    ),
}

FLAGS: Final = {
    name: flag for section in SECTIONS.values() for flag in section for name in flag.names
}


@dataclass(slots=True)
class CommandLine:
    """A parsed command line: settings by option name, actions, and the words after the flags."""

    settings: dict[str, Any] = field(default_factory=dict)
    actions: set[str] = field(default_factory=set)
    words: list[str] = field(default_factory=list)


def read_command_line(arguments: Sequence[str]) -> CommandLine:
    """Parse the arguments, without the program's name. Raises FlagError."""
    line = CommandLine()
    rest = list(arguments)
    while rest and len(rest[0]) > 1 and rest[0].startswith("-"):
        argument = rest.pop(0)
        if argument == "--":
            break
        name, equals, value = _name_of(argument).partition("=")
        flag = _find(name)
        if not equals and flag.kind in WITH_VALUE:
            if not rest:
                raise FlagError(f"flag needs an argument: -{name}")
            value = rest.pop(0)
        _apply(line, flag, name, value if equals or flag.kind in WITH_VALUE else "true")
    line.words = rest
    return line


def _name_of(argument: str) -> str:
    name = argument.removeprefix("-").removeprefix("-")
    if not name or name[0] in "-=":
        raise FlagError(f"bad flag syntax: {argument}")
    return name


def _find(name: str) -> Flag:
    if name not in FLAGS:
        raise FlagError(f"flag provided but not defined: -{name}")
    return FLAGS[name]


def _apply(line: CommandLine, flag: Flag, name: str, text: str) -> None:
    """Store a flag's value in `line`; it replaces an earlier value of the same flag."""
    value: str | int | bool = text
    if flag.kind == "int" or (flag.kind == "size" and text.lstrip("+-").isdecimal()):
        value = _whole(name, text)
    elif flag.kind in ("switch", "action"):
        value = _truth(name, text)
    if flag.kind == "action":
        line.actions.update(flag.sets if value else ())
    else:
        line.settings.update(dict.fromkeys(flag.sets, value))


def _truth(name: str, text: str) -> bool:
    if text not in _TRUE + _FALSE:
        raise FlagError(f'invalid boolean value "{text}" for -{name}: parse error')
    return text in _TRUE


def _whole(name: str, text: str) -> int:
    """Return a number in Go's notation, which includes 0x1f, 0o17, 017, 0b11 and 1_000."""
    digits = text.lstrip("+-")
    is_old_octal = len(digits) > 1 and digits.isdigit() and digits.startswith("0")
    try:
        number = int(text, 8 if is_old_octal else 0)
    except ValueError:
        raise FlagError(f'invalid value "{text}" for flag -{name}: parse error') from None
    if not INT64_MIN <= number <= INT64_MAX:
        raise FlagError(f'invalid value "{text}" for flag -{name}: value out of range')
    return number
