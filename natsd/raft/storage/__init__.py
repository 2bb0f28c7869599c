"""The logs of all RAFT groups of a server: one write and one sync for all that a turn changed.

    raft_logs        RaftLogs: what a server calls; the order of writes, group commit, and room
    group_log        the live part of one group's log, and where on disk it is
    log_files        a sequence of segment files that batches are appended to
    records          what the entries of a batch mean
    segment_reader   a segment as a start finds it: its batches, and whether its end is torn
    recovery         the state of all groups, out of the segments of both sequences
    snapshot_files   the snapshots, one file each
    sealing          the encryption of all of that, if the server has a key

    log.1  log.2  log.3 ...     entries of all groups, and the state of each group that changed
    state.7                     the state of all groups once more: the loss of either sequence
                                loses no term and no vote
    snapshots/<group>.<index>   each holds its content twice
    key.db                      the key of encrypted logs, wrapped; and key.db.copy

The *state* of a group: term, vote, health, and the index of its snapshot (`records.GroupState`).

Promise
- A write is reported when both sequences have it synced. The writes of a group are on disk in the
  order in which they were asked for, and none without all before it.
- After a crash, what follows the last whole batch is torn: it was never reported. Bytes that were
  synced and do not verify are damage. A start reports it, with the groups that may have lost
  something, and these groups are not `SOUND` until they are repaired. It gives back no entry that
  was not written, and none behind one that is missing.
- Torn and damaged ends are told apart by the sectors: a sector is written as a whole, so one that
  never reached the disk still holds zeros, and a damaged one does not. So a damaged sector is found
  out even in the last batch. Space is reserved in front of the batches, and they tell how much, so
  that a file that was cut off is found out, too, unless at a batch that has reserved more.
- A segment whose live entries were written once more is removed. All segments together have at most
  twice `segment_bytes_max` or three times the bytes of live entries, whichever is more.
- A file with an unknown name or version is neither changed nor removed; a segment of a later
  version stops the start. Damaged segments are set aside with the suffix `.damaged`.
- With a key, everything here is encrypted but the names of files; all of the above holds as it
  does without one. Wrong keys stop the start before anything is changed.
- After a failed sync nothing more is written until the logs are opened again. If there is no space,
  the same writes are tried again by `retry`.

Source: TiKV's raft-engine and CockroachDB's shared engine as models of one log for all groups;
"Protocol-Aware Recovery for Consensus-Based Storage" (Alagappan et al., 2018) for why a torn end
and a damaged one must be told apart.
"""
