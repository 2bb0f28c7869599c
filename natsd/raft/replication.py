"""What a leader sends to one follower next: entries, a probe, the snapshot, the commit index."""

from natsd.raft.entry import Entry
from natsd.raft.member import Member
from natsd.raft.messages import Append, Heartbeat, InstallSnapshot
from natsd.raft.progress import Progress, Sending


def send_next(me: Member, progress: Progress, is_probe: bool = False) -> None:
    """Send what the follower lacks, as far as its window allows.

    `is_probe` sends an empty Append in any case, to find out what was lost.
    """
    if progress.sending is Sending.SNAPSHOT:
        return
    if progress.next <= me.log.base:
        _send_snapshot(me, progress)
    elif progress.sending is Sending.PROBE:
        if not progress.is_paused:
            progress.is_paused = True
            _send_append(me, progress, me.log.last_index)
    elif is_probe:
        _append(me, progress, ())
    else:
        _replicate(me, progress)


def _replicate(me: Member, progress: Progress) -> None:
    log, window = me.log, progress.window
    last = log.commit if progress.is_deferred else log.last_index
    while progress.next <= last and not window.is_full:
        last_index, size = _send_append(me, progress, last)
        window.add(last_index, size)
        progress.next = last_index + 1
    told = min(log.commit, progress.held)
    if told > progress.commit_told:
        progress.commit_told = told
        me.messages.append(Heartbeat(me.id, progress.member, me.term, told, 0))


def _send_append(me: Member, progress: Progress, last: int) -> tuple[int, int]:
    """Send entries from `next` up to at most `last`; return the last index sent and the bytes."""
    entries, size = me.log.slice(progress.next, last, me.options.append_bytes_max)
    _append(me, progress, entries)
    last_index = progress.next + len(entries) - 1
    progress.commit_told = max(progress.commit_told, min(me.log.commit, last_index))
    return last_index, size


def _append(me: Member, progress: Progress, entries: tuple[Entry, ...]) -> None:
    prev_index = progress.next - 1
    prev_term = me.log.term_at(prev_index)
    assert prev_term is not None
    me.messages.append(
        Append(me.id, progress.member, me.term, prev_index, prev_term, me.log.commit, entries)
    )


def _send_snapshot(me: Member, progress: Progress) -> None:
    progress.install(me.log.snapshot.index)
    me.messages.append(InstallSnapshot(me.id, progress.member, me.term, me.log.snapshot))
