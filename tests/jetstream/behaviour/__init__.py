"""JetStream's behaviour as clients see it; the tests hold for nats-server too."""
