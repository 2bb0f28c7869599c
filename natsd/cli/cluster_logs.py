"""The logs of several servers as one: each line begins with the server's name."""

import contextlib
from collections.abc import Iterable

from natsd.local_cluster.member import Member


class Logs:
    """The logs of these servers, and how far each was shown."""

    def __init__(self, members: Iterable[Member]) -> None:
        """Skip what is logged already."""
        self._shown = {member: member.logged_bytes for member in members}
        self._width = max((len(member.name) for member in self._shown), default=0)

    def show_last(self, count: int) -> None:
        """Print the last `count` lines of each log."""
        for member, shown in self._shown.items():
            with contextlib.suppress(FileNotFoundError), member.log.open("rb") as log:
                lines = log.read(shown).splitlines()
                for line in lines[max(len(lines) - count, 0) :]:
                    self._print(member, line)

    def show_new(self) -> None:
        """Print the whole lines that were logged since the last call."""
        for member, shown in self._shown.items():
            with contextlib.suppress(FileNotFoundError), member.log.open("rb") as log:
                if member.logged_bytes < shown:  # somebody has emptied it
                    shown = 0
                log.seek(shown)
                text = log.read()
                text = text[: text.rfind(b"\n") + 1]
                for line in text.splitlines():
                    self._print(member, line)
                self._shown[member] = shown + len(text)

    def _print(self, member: Member, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        print(f"{member.name:<{self._width}} | {text}", flush=True)
