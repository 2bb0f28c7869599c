"""RAFT: one log of entries that a majority of the servers in a group agrees on.

    natsd.raft.entry      what the log consists of: entries, hard state, membership, snapshots
    natsd.raft.messages   what the members of a group send to each other
    natsd.raft.effects    what a node asks its driver to do: persist, send, apply

The algorithm (`Node`) is a pure state machine after etcd's raft: `step(message)`, `tick()`,
`propose(data)`, then `take_effects()`. It has no sockets, files, clocks or random source. A driver
carries the effects out.

Source: "In Search of an Understandable Consensus Algorithm" (Ongaro, Ousterhout 2014), and Ongaro's
thesis "Consensus: Bridging Theory and Practice" (2014).
"""
