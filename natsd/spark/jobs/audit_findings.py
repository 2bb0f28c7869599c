"""Findings of an audit, as text, as plain values, and as an exit code.

0   every checksum verifies, nothing is missing or duplicate, and the replicas are equal
1   there are findings
2   something could not be read; the readable parts are reported
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Final

CLEAN: Final = 0
FOUND: Final = 1
UNREAD: Final = 2

DAMAGE: Final = "damage"
MISSING: Final = "missing"
DUPLICATE_ID: Final = "duplicate id"
TIME_ORDER: Final = "time order"
ONLY_IN: Final = "only in some"
DIFFERENT: Final = "different"


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """One finding in `replica`, or between replicas (then `replica` is empty).

    It concerns messages `first` to `last`; both are 0 if it concerns none, and `last` is 0 if there
    is no known end. `file`, `offset` and `length` (bytes) are set if bytes do not verify.
    """

    kind: str
    replica: str
    stream: str
    first: int
    last: int
    what: str
    file: str = ""
    offset: int = 0
    length: int = 0

    def __str__(self) -> str:
        parts = [part for part in (self.replica, self.stream, self._messages()) if part]
        where = ""
        if self.file:
            where = f" ({self.file} at byte {self.offset}, {self.length} bytes)"
        return f"{self.kind}: {' · '.join(parts)}: {self.what}{where}"

    def _messages(self) -> str:
        if not self.first:
            return ""
        if not self.last:
            return f"messages from {self.first} on"
        if self.first == self.last:
            return f"message {self.first}"
        return f"messages {self.first} to {self.last}"


@dataclass(slots=True)
class ReplicaStreamState:
    """State of one stream in one replica.

    `deleted`: number of sequences without a message that were removed, purged, skipped or erased;
    `missing`: number of sequences that should have one; `data_bytes`: bytes of all payloads.
    """

    replica: str
    stream: str
    first: int
    last: int
    messages: int = 0
    data_bytes: int = 0
    deleted: int = 0
    missing: int = 0
    deleted_runs: list[tuple[int, int]] = field(default_factory=list)
    blocks: int = 0


@dataclass(slots=True)
class Audited:
    """Outcome of an audit.

    `findings` lists at most `limit` findings of each kind and stream. `counts` has all, by kind:
    messages for differences between replicas, findings for the other kinds. `unread` lists the
    parts that could not be read; `compared` counts compared sequences.
    """

    replicas: list[str]
    streams: list[ReplicaStreamState] = field(default_factory=list)
    findings: list[AuditFinding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    unread: list[str] = field(default_factory=list)
    compared: int = 0
    seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        """Whether there are no findings and everything was read."""
        return not self.counts and not self.unread

    @property
    def exit_code(self) -> int:
        """Exit code of the command: 0 clean, 1 findings, 2 something was unreadable."""
        if self.unread:
            return UNREAD
        return FOUND if self.counts else CLEAN

    def add(self, finding: AuditFinding, messages: int = 1) -> None:
        """Add a finding that counts for `messages`."""
        self.findings.append(finding)
        self.counts[finding.kind] += messages

    def text(self) -> str:
        """Return a line for each stream and finding, and the verdict."""
        lines = [_state_line(state) for state in self.streams]
        lines += [str(finding) for finding in self.findings]
        lines += [f"could not be read: {line}" for line in self.unread]
        return "\n".join([*lines, self._verdict()])

    def _verdict(self) -> str:
        messages = sum(state.messages for state in self.streams)
        verdict = "clean" if self.is_clean else self._told_counts()
        compared = f", {self.compared:,} sequences compared" if len(self.replicas) > 1 else ""
        streams = f"{len(self.streams)} stream{'' if len(self.streams) == 1 else 's'}"
        done = f"{streams}, {messages:,} messages{compared}"
        return f"{done} in {self.seconds:.1f} s: {verdict}"

    def _told_counts(self) -> str:
        told = [f"{count:,} × {kind}" for kind, count in sorted(self.counts.items())]
        if self.unread:
            told.append(f"{len(self.unread)} could not be read")
        return ", ".join(told)

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as plain values."""
        return {
            "clean": self.is_clean,
            "exit_code": self.exit_code,
            "replicas": self.replicas,
            "streams": [asdict(state) for state in self.streams],
            "findings": [asdict(finding) for finding in self.findings],
            "counts": dict(self.counts),
            "compared": self.compared,
            "unread": self.unread,
            "seconds": round(self.seconds, 3),
        }


def _state_line(state: ReplicaStreamState) -> str:
    gone = f", {state.deleted:,} deleted" if state.deleted else ""
    gone += f", {state.missing:,} missing" if state.missing else ""
    span = f"{state.first} to {state.last}" if state.first <= state.last else "empty"
    return f"{state.replica} · {state.stream}: {state.messages:,} messages, {span}{gone}"
