"""`natsd bench --jetstream`: what JetStream costs, side by side with nats-server."""
