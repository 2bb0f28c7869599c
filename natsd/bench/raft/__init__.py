"""RAFT alone: proposals a second through three processes, and the cost of groups that are idle."""
