"""Acknowledgements of publishes before the replicas have committed them, if a stream asks for it.

    natsd.ack: quorum-synced    nothing here: the publish is committed, and synced by a majority
               quorum-written   a majority has written it; another one has to sync it to be safe
               leader           the leader has synced it

Only answers to publishers are early. What is shown, delivered and confirmed is committed. A publish
that was acknowledged early is lost if another leader is elected that does not have it.
"""

from collections import deque

from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.stream.settings_in_metadata import AckLevel, ack_level
from natsd.jetstream.stream.stream import Stream
from natsd.raft.group import RaftGroup


class EarlyAnswers:
    """What a leader has submitted, and may answer before it is committed."""

    def __init__(self) -> None:
        self._config: StreamConfig | None = None  # that is followed
        self._level = AckLevel.QUORUM_SYNCED
        self._term = 0  # of the leadership
        self._submitted = 0  # commands
        self._entries: deque[tuple[int, int]] = deque()  # index, and number of commands up to it

    def follow(self, stream: Stream, group: RaftGroup) -> None:
        """Do what the configuration of the stream asks for; on followers, too."""
        if stream.config is self._config:
            return
        self._config, self._level = stream.config, ack_level(stream.config)
        group.is_early = self._level is AckLevel.QUORUM_WRITTEN
        if self._level is AckLevel.QUORUM_SYNCED:
            group.on_progress = None
        else:
            group.on_progress = lambda: self._answer(stream, group)

    def begin(self, term: int, committed: int) -> None:
        """Begin to lead in a term, after so many commands."""
        self._term, self._submitted = term, committed
        self._entries.clear()

    def submitted(self, index: int, number: int) -> None:
        """Note an entry with the next `number` commands."""
        self._submitted += number
        if self._level is not AckLevel.QUORUM_SYNCED:
            self._entries.append((index, self._submitted))

    def _answer(self, stream: Stream, group: RaftGroup) -> None:
        node, log, number = group.node, group.node.log, 0
        if not node.is_leader or node.term != self._term:
            return  # another leader's entries may stand in these places
        if self._level is AckLevel.LEADER:
            index = max(log.stable, log.commit)
        else:
            index = max(node.written_index, log.commit)
        while self._entries and self._entries[0][0] <= index:
            number = self._entries.popleft()[1]
        if number:
            stream.readers.acknowledge(number)
