"""RAFT: one log of entries that a majority of the servers in a group agrees on.

    natsd.raft.entry          what the log consists of: entries, hard state, membership, snapshots
    natsd.raft.messages       what members send to each other; natsd.raft.frames: its bytes
    natsd.raft.effects        what a node asks its driver to do: persist, send, apply
    natsd.raft.node           one member: messages, ticks and proposals in, effects out
    natsd.raft.repair         why a member with a damaged disk does no harm
    natsd.raft.host           the driver of all groups of a server; natsd.raft.group: one of them
    natsd.raft.storage        the logs of all groups on disk

The algorithm (`Node`) is a pure state machine after etcd's raft: `step(message)`, `tick()`,
`propose(data)`, then `take_effects()`. It has no sockets, files, clocks or random source. A driver
carries the effects out. docs/raft.md draws the parts, and says how they are tested.

Source: "In Search of an Understandable Consensus Algorithm" (Ongaro, Ousterhout 2014), and Ongaro's
thesis "Consensus: Bridging Theory and Practice" (2014).
"""
