"""`natsd bench --jetstream`: the cost of JetStream, side by side with nats-server."""
