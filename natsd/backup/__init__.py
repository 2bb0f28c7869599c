"""Backups of every account's streams: `natsd backup` and `natsd restore` (docs/backup.md).

    taking │ restoring │ pruning     what the commands do
    server │ files                   where streams come from and go to
    source │ verifying               what these two have in common │ pieces read back and counted
    configuration                    files of the configuration, and JWTs
    collecting │ composing           a snapshot's entries into pieces, and back
    directory                        the backups of a directory, its lock
    pieces │ manifest                the files of a directory, and what they say
    errors

Each module imports only from those below it. Everything here blocks on the disk and the network.
"""
