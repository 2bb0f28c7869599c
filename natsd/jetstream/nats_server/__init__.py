"""Moving streams in from nats-server's files, and out to its snapshots, without a server."""
