"""Proof with real servers: replicated JetStream keeps its promises while the cluster is broken.

    python -m tests.cluster_proof --list
    python -m tests.cluster_proof leader-killed --seconds 60 --seed 7
    python -m tests.cluster_proof leader-partitioned --binary nats-server

Three to five servers run on loopback, each a process. Clients publish, consume and compare and set
keys all the time, and note what they were promised. A scenario breaks things meanwhile. At the end
the cluster is made whole, and everything that was promised is checked.

    links.py       the connections between servers: proxies that can cut each direction
    servers.py     the processes: kill, pause, restart, wipe, fill the disk
    files.py       the files of a server's store: flip bytes, truncate, delete
    clients.py     a client of nats-py that goes to another server if its own does not serve it
    journal.py     what clients did and what they were told
    load.py        all clients together; publishing.py, consuming.py, key_value.py: each kind
    stored.py      the content of the stream, as each replica has it
    check.py       compares the journal with what is stored
    scenarios.py   what breaks, when, and what is awaited
    run.py         one run: servers, load, faults, healing, checks; its report

The servers are natsd, or the program that NATSD_TEST_SERVER names.
"""
