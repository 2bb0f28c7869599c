"""Proposer: the changes of one stream and its consumers, as commands in the order of the changes.

    publish ─▶ begin_publish ─▶ applied ─▶ what it removed ─▶ Publish ────────────┐
    any removal ─▶ note_removed … the end of the slice ─▶ PurgeMessages, … ───────┼─▶ the committer
    a consumer's changes ─▶ TrackerRun … before the next command, or at the end ──┤
    every other change ─▶ propose ────────────────────────────────────────────────┘

Promise
- Every change becomes a part of one command, and commands keep the order of their changes: before
  a command is handed on, the removals and the consumers' changes before it are.
- A consumer's changes between two other commands are one command, since each message is two of
  them. Changes of several consumers need no order.
- A pending message that is removed is acknowledged by a command behind the one that removes it: a
  replica that has only the first of them still delivers nothing that is gone.
- The messages of an atomic batch, and what happens to the stream while a large one is appended in
  slices, are one command.
- Nothing that is not committed is written to the stream's files: `MessageLog.committed_index`, and
  `is_staged` while a change is no part of a command.
- Commands that are committed and may not be in the stream's files yet are kept in `unwritten`.
- A stream without a committer has no proposer (`StreamReaders.proposer`), and makes no commands.

commands/commands.py has the commands; docs/architecture.md says who proposes which.
"""

from collections import deque

from libc.stdint cimport uint8_t, uint64_t

from natsd.store.consumer.tracking cimport EntryBuffer, EntryListener
from natsd.store.log.message_log cimport MessageLog
from natsd.store.sequence_set cimport SequenceSet

from natsd.jetstream.commands.commands import (
    ChangeTracker,
    Publish,
    PublishBatch,
    PurgeAll,
    Release,
    StreamCommand,
)


cdef class TrackerRun(EntryListener):
    def __init__(self, Proposer proposer not None, str name not None):
        """Propose the changes of the tracker of that consumer, whose listener this becomes."""
        self.proposer = proposer
        self.name = name
        self.entries = EntryBuffer()
        self.caused = EntryBuffer()

    cdef int note(
        self, uint8_t kind, uint8_t flags, uint64_t count, uint64_t a, uint64_t b, uint64_t c
    ) except -1:
        cdef Proposer proposer = self.proposer
        cdef EntryBuffer to = self.caused if proposer.removed.count else self.entries
        to.add(kind, flags, count, a, b, c)
        if not self.is_listed:
            self.is_listed = True
            proposer.runs.append(self)
            if proposer.summoned is not None:
                proposer.scheduler.submit(proposer.summoned)
        return 0


cdef class Proposer:
    def __init__(self, committer not None, MessageLog log not None, uint64_t index, on_committed):
        """Propose to `committer`, a CommandCommitter, after the command with that index; 0: none.

        `on_committed` is called with each command once it is committed, but for publishes without
        headers: they are no copies of a source, and not delayed.
        """
        self.committer = committer
        self.log = log
        self.proposed = self.committed = index
        self.on_committed = on_committed
        self.staged = deque()
        self.unwritten = deque()
        self.removed = SequenceSet()
        self.runs = []

    def propose(self, command not None) -> None:
        """Propose a command that was applied, after the removals made before it."""
        self.begin_publish()
        self.hand_on(command)

    def propose_removals(self, kind not None) -> None:
        """Propose the messages removed since the last command as a command of that kind."""
        if self.removed.count:
            self.hand_on(kind(self.take_removed()))

    def propose_rest(self) -> int:
        """Propose what was changed and is no part of a command; return the last command's index.

        What happens during an atomic batch is part of the batch's command, which is the next one.
        """
        self.begin_publish()
        self.propose_runs()
        return self.proposed + (1 if self.batch else 0)

    def emptied(self, uint64_t next_sequence) -> None:
        """Propose that the stream was emptied at once."""
        self.propose(PurgeAll(next_sequence))

    def forget_staged(self) -> None:
        """Forget removals and a batch that were not proposed: they were rolled back."""
        self.removed.empty()
        self.batch = None
        self.propose_runs()
        self.settle_caused()

    def commands_behind(self, uint64_t index) -> list:
        """Return the committed changes of the stream itself behind that command, oldest first.

        The log must hold no later commit than that of the index.
        """
        return [command for at, command in self.unwritten if at > index]

    cdef int look_for_unproposed(self) except -1:
        self.log.is_staged = self.removed.count > 0 or self.batch is not None
        return 0

    cdef int note_removed(self, uint64_t sequence) except -1:
        self.log.is_staged = True
        self.removed.add_run(sequence, sequence)
        return 0

    cdef tuple take_removed(self):
        cdef tuple runs = ()
        if self.removed.count:
            runs = tuple(self.removed.runs())
            self.removed.empty()
            self.look_for_unproposed()
        return runs

    cdef int begin_publish(self) except -1:
        if self.removed.count:
            self.propose_removals(Release)
        return 0

    cdef int end_publish(self, command) except -1:
        return self.hand_on(command)

    cdef int propose_runs(self) except -1:
        cdef list runs = self.runs
        cdef TrackerRun run
        if runs:
            self.runs = []
            for run in runs:
                if run.entries.count:
                    self.put(ChangeTracker(run.name, run.entries.take()))
                run.is_listed = run.caused.count > 0
                if run.is_listed:
                    self.runs.append(run)
        return 0

    cdef int settle_caused(self) except -1:
        """Take for usual changes what removals have caused: these are parts of commands."""
        cdef TrackerRun run
        for run in self.runs:
            if run.caused.count:
                assert run.entries.count == 0
                run.entries, run.caused = run.caused, run.entries
        return 0

    cdef int begin_batch(self) except -1:
        self.begin_publish()
        assert self.batch is None
        self.batch = []
        self.log.is_staged = True
        return 0

    cdef int end_batch(self) except -1:
        cdef list batch = self.batch
        self.propose_rest()
        self.batch = None
        self.look_for_unproposed()
        if batch:
            self.hand_on(PublishBatch(tuple(batch)))
        return 0

    cdef int hand_on(self, command) except -1:
        self.propose_runs()
        self.put(command)
        return self.settle_caused()

    cdef int put(self, command) except -1:
        if self.batch is not None:
            self.batch.append(command)
            return 0
        self.proposed += 1
        self.staged.append((command, self.log.edges.last))
        self.log.applied_index = self.proposed
        self.committer.propose(command)
        return 0

    cdef uint64_t sequence_at(self, uint64_t index) except? 0:
        return self.staged[index - self.committed - 1][1] if index > self.committed else 0

    cdef uint64_t commit(self, uint64_t index, uint64_t before) except? 0:
        while self.committed < index and self.staged:
            command, before = self.staged.popleft()
            self.committed += 1
            if type(command) is Publish:
                self.unwritten.append((self.committed, command))
                if command.headers or command.is_delayed:
                    self.on_committed(command)
                continue
            if isinstance(command, StreamCommand):
                self.unwritten.append((self.committed, command))
            self.on_committed(command)
        while self.unwritten and self.unwritten[0][0] <= self.log.durable_index:
            self.unwritten.popleft()
        self.log.committed_index = self.committed
        return before
