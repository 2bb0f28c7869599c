"""A client of the NATS protocol that blocks, with compiled frames: executors have no event loop."""
