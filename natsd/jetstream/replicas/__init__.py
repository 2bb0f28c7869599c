"""Streams with several replicas: each replica is a member of the stream's RAFT group."""
