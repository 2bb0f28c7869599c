"""The meta layer of a cluster: which servers have replicas of which stream."""
