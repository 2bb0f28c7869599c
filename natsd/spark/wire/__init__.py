"""A blocking NATS client with a compiled frame parser: executors have no event loop."""
