"""The text of `natsd -h`, made from the table of flags."""

from typing import Final

from natsd.cli.flags import SECTIONS, Flag
from natsd.core.program import STAND_IN

NAMES_WIDTH: Final = 34

_HEAD: Final = """\
Usage: natsd [options]
       natsd top [URL]               What a server does, live; natsd top -h tells more
       natsd bench [options]         Measure this server; natsd bench -h tells more
       natsd store check DIR         Look for damage in a store directory; natsd store -h tells more
       natsd store repair DIR        Set damage aside and write damaged files anew
       natsd store snapshot          A stream of a store directory into an archive
       natsd store restore           An archive's stream into a store directory
       natsd store import            The streams of a nats-server into a store directory
       natsd store export            Streams of a store directory for a nats-server
       natsd backup DIR              Back up streams of all accounts; natsd backup -h tells more
       natsd restore DIR             Restore streams from a backup
       natsd pipeline JOB            Streams archived, replayed, audited and more, on Spark
       natsd cluster up 3            A cluster on this machine; natsd cluster -h tells more
       natsd cluster rescue          Go on after most servers of a cluster were lost for good
       natsd config check FILE       What a configuration file would do
       natsd config diff FILE FILE   What differs, and which differences need a restart
"""
_STAND_IN_HEAD: Final = f"""\
Usage: {STAND_IN} [options]
"""


def usage(*, is_stand_in: bool = False) -> str:
    """Return the help text: the commands, then all flags by section.

    `is_stand_in` says that natsd was called by the name of nats-server.
    """
    parts = [_STAND_IN_HEAD if is_stand_in else _HEAD]
    for title, flags in SECTIONS.items():
        parts.append(f"{title} Options:\n" + "".join(map(_line, flags)))
    text = "\n".join(parts).rstrip()
    return text.replace("to natsd process", f"to {STAND_IN} process") if is_stand_in else text


def _line(flag: Flag) -> str:
    short = ", ".join(f"-{name}" for name in flag.names if len(name) <= 3)
    long = ", ".join(f"--{name}" for name in flag.names if len(name) > 3)
    names = f"    {short}, {long}" if short and long else f"    {short or '    ' + long}"
    if flag.value:
        names += f" <{flag.value}>"
    return f"{names:<{NAMES_WIDTH + 2}} {flag.help}\n"
